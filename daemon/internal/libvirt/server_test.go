// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// The procedures of libvirt's protocol that the tests answer.
const (
	procGetXMLDesc      = 14
	procGetAutostart    = 15
	procLookupByUUID    = 24
	procAuthList        = 66
	procPoolRefresh     = 83
	procPoolByName      = 84
	procPoolInfo        = 87
	procPoolXML         = 88
	procVolumeCreate    = 93
	procVolumeByName    = 95
	procVolumeXML       = 99
	procIsPersistent    = 151
	procGetLibVersion   = 157
	procHasManagedSave  = 183
	procSnapshotNum     = 187
	procGetState        = 212
	procListAllDomains  = 273
	procGetControlInfo  = 229
	procListCheckpoints = 413
)

// request is one request to the server. payload is its arguments as XDR.
type request struct {
	proc    uint32
	payload []byte
}

// answer returns XDR; nil leaves the request unanswered for the life of the connection.
type answer func(request) []byte

// refusal begins an answer that is an error.
const refusal = "refused "

// refuses answers with one of libvirt's errors.
func refuses(code golibvirt.ErrorNumber, message string) answer {
	return func(request) []byte {
		return append([]byte(refusal), xdr(uint32(code), uint32(0), uint32(1), message, uint32(2))...)
	}
}

// server is a libvirtd with answers from a test.
type server struct {
	path    string
	answers map[uint32]answer

	mu      sync.Mutex
	asked   map[uint32]int
	arrived chan struct{}
}

func newServer(t *testing.T, answers map[uint32]answer) *server {
	t.Helper()
	s := &server{path: filepath.Join(t.TempDir(), "s"), answers: answers, asked: map[uint32]int{}, arrived: make(chan struct{}, 1000)}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

// headerBytes is the size of the length and the six numbers that follow it.
const headerBytes = 28

func (s *server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		head := make([]byte, headerBytes)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		req := request{proc: binary.BigEndian.Uint32(head[12:]), payload: make([]byte, binary.BigEndian.Uint32(head)-headerBytes)}
		if _, err := io.ReadFull(conn, req.payload); err != nil {
			return
		}
		s.mu.Lock()
		s.asked[req.proc]++
		s.mu.Unlock()
		s.arrived <- struct{}{}
		body, known := []byte{}, false
		if f := s.answers[req.proc]; f != nil {
			body, known = f(req), true
		} else if req.proc == procAuthList {
			body = xdr(uint32(0))
		}
		if known && body == nil {
			continue
		}
		body, refused := bytes.CutPrefix(body, []byte(refusal))
		if refused {
			binary.BigEndian.PutUint32(head[24:], 1)
		}
		binary.BigEndian.PutUint32(head, uint32(headerBytes+len(body)))
		binary.BigEndian.PutUint32(head[16:], 1) // a reply
		if _, err := conn.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// total returns the number of requests to the server.
func (s *server) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		n += asked
	}
	return n
}

// wait returns when the procedure was called n times.
func (s *server) wait(t *testing.T, proc uint32, n int) {
	t.Helper()
	for {
		s.mu.Lock()
		got := s.asked[proc]
		s.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-s.arrived:
		case <-time.After(10 * time.Second):
			t.Fatalf("procedure %d was asked for %d times in 10 s, want %d", proc, got, n)
		}
	}
}

// xdr encodes numbers, strings and UUIDs one after the other.
func xdr(values ...any) []byte {
	out := []byte{}
	for _, v := range values {
		switch v := v.(type) {
		case uint32:
			out = binary.BigEndian.AppendUint32(out, v)
		case uint64:
			out = binary.BigEndian.AppendUint64(out, v)
		case string:
			out = binary.BigEndian.AppendUint32(out, uint32(len(v)))
			out = append(out, v...)
			out = append(out, make([]byte, (4-len(v)%4)%4)...)
		case uuid.UUID:
			out = append(out, v[:]...)
		}
	}
	return out
}

func always(values ...any) answer { return func(request) []byte { return xdr(values...) } }

// linked returns a connection to the server.
func linked(t *testing.T, s *server) *Conn {
	t.Helper()
	c := New(Config{Socket: s.path})
	l := &link{}
	for _, session := range l.core() {
		var err error
		if *session, err = c.dial(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(l.close)
	c.setLink(l)
	return c
}

var guestID = uuid.MustParse("5f6d9a53-0000-4000-8000-000000000001")

func TestALibvirtThatIsConnectedAndHangsDoesNotAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		answer answer
		want   error
	}{
		"answers": {always(uint64(9000001)), nil},
		"hangs":   {func(request) []byte { return nil }, hv.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, map[uint32]answer{procGetLibVersion: tc.answer})
			c := linked(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.want != nil {
				go func() {
					s.wait(t, procGetLibVersion, 1)
					cancel()
				}()
			}
			if err := c.Answers(ctx); !errors.Is(err, tc.want) {
				t.Errorf("Answers = %v, want %v", err, tc.want)
			}
		})
	}
}

// A pool with a server that is down delays neither the resume of a paused guest nor another pool;
// and it occupies only one call of libvirtd, however often it is used.
func TestADeadPoolHoldsUpNothingElse(t *testing.T) {
	s := newServer(t, map[uint32]answer{
		procPoolByName: func(r request) []byte { return append(append([]byte{}, r.payload...), guestID[:]...) },
		procPoolInfo:   always(uint32(2), uint64(100), uint64(0), uint64(100)),
		procPoolXML:    always("<pool type='dir'><name>p</name><target><path>/p</path></target></pool>"),
		procPoolRefresh: func(r request) []byte {
			if string(r.payload[4:8]) == "dead" {
				return nil
			}
			return []byte{}
		},
		procVolumeByName: always("live", "v", "key"),
		procVolumeXML:    always("<volume type='file'><name>v</name><capacity>512</capacity><target><path>/live/v</path></target></volume>"),
		procLookupByUUID: always("guest", guestID, uint32(1)),
	})
	c := linked(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 3 * maxInFlight {
		waiting.Go(func() {
			if _, err := c.LookupVolume(ctx, "dead", "v"); !errors.Is(err, hv.ErrUnavailable) {
				t.Errorf("LookupVolume of the dead pool = %v, want ErrUnavailable", err)
			}
		})
	}
	s.wait(t, procPoolRefresh, 1)
	if err := c.Resume(t.Context(), guestID.String()); err != nil {
		t.Errorf("Resume = %v", err)
	}
	if v, err := c.LookupVolume(t.Context(), "live", "v"); err != nil || v.CapacityBytes != 512 {
		t.Errorf("LookupVolume of a live pool = %+v, %v", v, err)
	}
	cancel()
	waiting.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.asked[procPoolRefresh]; n != 2 {
		t.Errorf("libvirtd was asked to refresh a pool %d times, want once for each pool", n)
	}
}

// An abandoned creation would make the volume later, unnoticed.
func TestTheCreationOfAVolumeIsNotLeft(t *testing.T) {
	release := make(chan struct{})
	s := newServer(t, map[uint32]answer{
		procPoolByName:   func(r request) []byte { return append(append([]byte{}, r.payload...), guestID[:]...) },
		procPoolInfo:     always(uint32(2), uint64(100), uint64(0), uint64(100)),
		procPoolXML:      always("<pool type='dir'><name>p</name><target><path>/p</path></target></pool>"),
		procVolumeCreate: func(request) []byte { <-release; return xdr("p", "v", "key") },
		procVolumeXML:    always("<volume type='file'><name>v</name><capacity>512</capacity><target><path>/p/v</path></target></volume>"),
	})
	c := linked(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.CreateVolume(ctx, "p", "v", "raw", 512, nil)
		done <- err
	}()
	s.wait(t, procVolumeCreate, 1)
	cancel()
	select {
	case err := <-done:
		t.Errorf("CreateVolume = %v while nobody knows what becomes of it", err)
	case <-time.After(50 * time.Millisecond): // otherwise it would have returned at once
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("CreateVolume = %v", err)
	}
}

func TestADomainThatCannotBeReadLeavesTheOthers(t *testing.T) {
	silent, broken := uuid.MustParse("5f6d9a53-0000-4000-8000-000000000002"), uuid.MustParse("5f6d9a53-0000-4000-8000-000000000003")
	of := func(r request, id uuid.UUID) bool { // the domain's id is the last argument before the flags
		for i := range len(r.payload) - len(id) + 1 {
			if uuid.UUID(r.payload[i:i+len(id)]) == id {
				return true
			}
		}
		return false
	}
	xml := "<domain type='qemu'><name>guest</name><memory>1024</memory><devices/></domain>"
	s := newServer(t, map[uint32]answer{
		procListAllDomains: always(uint32(3), "broken", broken, ^uint32(0), "guest", guestID, ^uint32(0), "silent", silent, ^uint32(0), uint32(3)),
		procGetXMLDesc: func(r request) []byte {
			switch {
			case of(r, silent):
				return nil
			case of(r, broken):
				return xdr("<domain")
			}
			return xdr(xml)
		},
		procGetState:        always(uint32(5), uint32(0)),
		procIsPersistent:    always(uint32(0)),
		procGetControlInfo:  always(uint32(0), uint32(0), uint64(0)),
		procSnapshotNum:     always(uint32(0)),
		procListCheckpoints: always(uint32(0), uint32(0)),
	})
	c := linked(t, s)
	c.listedTimeout = 50 * time.Millisecond
	for range 2 * maxInFlight { // it does not use up the session's slots
		doms, err := c.Domains(t.Context())
		var unreadable *hv.Unreadable
		if !errors.As(err, &unreadable) || len(unreadable.Domains) != 2 || unreadable.Domains[0].Name != "broken" || unreadable.Domains[1].ID != silent.String() {
			t.Fatalf("Domains = %v, want an error that names the two", err)
		}
		if len(doms) != 1 || doms[0].Name != "guest" {
			t.Fatalf("Domains = %+v, want the one that can be read", doms)
		}
	}
	if doms, _, err := hv.Readable(c.Domains(t.Context())); err != nil || len(doms) != 1 {
		t.Errorf("Readable = %d domains, %v", len(doms), err)
	}
}

// A paused guest waits for each call.
func TestADomainIsReadByItsUUIDAlone(t *testing.T) {
	s := newServer(t, map[uint32]answer{
		procGetXMLDesc:      always("<domain type='qemu' id='7'><name>guest</name><memory>1024</memory><devices/></domain>"),
		procGetState:        always(uint32(3), uint32(1)),
		procIsPersistent:    always(uint32(1)),
		procGetAutostart:    always(uint32(1)),
		procHasManagedSave:  always(uint32(0)),
		procGetControlInfo:  always(uint32(0), uint32(0), uint64(0)),
		procSnapshotNum:     always(uint32(0)),
		procListCheckpoints: always(uint32(0), uint32(0)),
	})
	c := linked(t, s)
	before := s.total()
	dom, err := c.Domain(t.Context(), guestID.String())
	if err != nil || dom.Name != "guest" || dom.ID != guestID.String() || dom.State != hv.StatePaused || dom.Run != 7 || !dom.Autostart {
		t.Errorf("Domain = %+v, %v", dom, err)
	}
	if n := s.total() - before; n > 9 {
		t.Errorf("libvirtd was asked %d questions, want 9 at most", n)
	}
}

func TestADomainThatIsNotThereIsNotFound(t *testing.T) {
	s := newServer(t, map[uint32]answer{procGetControlInfo: refuses(golibvirt.ErrNoDomain, "Domain not found: no domain with matching uuid")})
	c := linked(t, s)
	if _, err := c.Domain(t.Context(), guestID.String()); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("Domain = %v, want ErrNotFound", err)
	}
	if _, err := c.Domain(t.Context(), "no UUID"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("Domain of what is no UUID = %v, want ErrNotFound", err)
	}
}
