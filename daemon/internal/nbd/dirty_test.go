// SPDX-License-Identifier: Apache-2.0

package nbd_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/nbd"
)

const miB = 1 << 20

// server answers one client as its fields configure; the zero value has no bitmap and no bytes.
type server struct {
	sizeBytes uint64
	bitmap    string
	// answer returns the extents for a request, in pairs of length and flags.
	answer func(off, n uint64) []uint32
	// fail makes the answer an error, and noSize omits the size.
	fail, noSize bool
	// raw, if set, returns the whole reply to a request with this cookie.
	raw func(cookie []byte) []byte
}

// listen serves one client at a socket, and returns its path.
func (s *server) listen(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = s.serve(conn) // a client that disconnects ends it
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

var be = binary.BigEndian

func (s *server) serve(conn io.ReadWriter) error {
	hello := be.AppendUint16(append([]byte("NBDMAGIC"), "IHAVEOPT"...), 3)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
		return err
	}
	for {
		head := make([]byte, 16)
		if _, err := io.ReadFull(conn, head); err != nil {
			return err
		}
		option := be.Uint32(head[8:])
		data := make([]byte, be.Uint32(head[12:]))
		if _, err := io.ReadFull(conn, data); err != nil {
			return err
		}
		reply := func(kind uint32, data []byte) {
			b := be.AppendUint64(nil, 0x3e889045565a9)
			b = be.AppendUint32(be.AppendUint32(be.AppendUint32(b, option), kind), uint32(len(data)))
			_, _ = conn.Write(append(b, data...))
		}
		if option == 10 && s.bitmap != "" && strings.HasSuffix(string(data), "qemu:dirty-bitmap:"+s.bitmap) {
			reply(4, append([]byte{0, 0, 0, 9}, "qemu:dirty-bitmap:"+s.bitmap...))
		}
		if option == 7 && !s.noSize {
			reply(3, be.AppendUint16(be.AppendUint64([]byte{0, 0}, s.sizeBytes), 1))
		}
		reply(1, nil)
		if option == 7 {
			return s.transmit(conn)
		}
	}
}

func (s *server) transmit(conn io.ReadWriter) error {
	for {
		q := make([]byte, 28)
		if _, err := io.ReadFull(conn, q); err != nil {
			return err
		}
		if be.Uint16(q[6:]) == 2 {
			return nil
		}
		if s.raw != nil {
			if _, err := conn.Write(s.raw(q[8:16])); err != nil {
				return err
			}
			continue
		}
		kind, payload := uint16(5), be.AppendUint32(nil, 9)
		for _, n := range s.answer(be.Uint64(q[16:]), uint64(be.Uint32(q[24:]))) {
			payload = be.AppendUint32(payload, n)
		}
		if s.fail {
			kind, payload = 1<<15|1, []byte{0, 0, 0, 5, 0, 0}
		}
		head := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, 0x668e33ef), 1), kind)
		head = be.AppendUint32(append(head, q[8:16]...), uint32(len(payload)))
		if _, err := conn.Write(append(head, payload...)); err != nil {
			return err
		}
	}
}

func TestDirtyRangesAreJoinedAcrossAnswers(t *testing.T) {
	s := &server{sizeBytes: 5 << 30, bitmap: "b", answer: func(off, n uint64) []uint32 {
		switch off {
		case 0: // less than requested
			return []uint32{miB, 0, miB, 1}
		case 2 * miB:
			return []uint32{2 * miB, 1, uint32(n) - 2*miB, 0}
		case 5<<30 - miB: // more than the export has
			return []uint32{8 * miB, 1}
		}
		return []uint32{uint32(min(n, 5<<30-miB-off)), 0}
	}}
	got, sizeBytes, err := nbd.DirtyRanges(t.Context(), s.listen(t), "e", "b")
	want := []nbd.Range{{Offset: miB, Bytes: 3 * miB}, {Offset: 5<<30 - miB, Bytes: miB}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || sizeBytes != 5<<30 {
		t.Errorf("%d bytes, %v, ranges (-want +got):\n%s", sizeBytes, err, diff)
	}
}

func TestAnAnswerThatIsNotWholeIsAnError(t *testing.T) {
	extents := func(all ...uint32) func(uint64, uint64) []uint32 {
		return func(uint64, uint64) []uint32 { return all }
	}
	for name, s := range map[string]*server{
		"no extent":          {sizeBytes: miB, bitmap: "b", answer: extents()},
		"half an extent":     {sizeBytes: miB, bitmap: "b", answer: extents(miB)},
		"extent of no bytes": {sizeBytes: miB, bitmap: "b", answer: extents(0, 1)},
		"past the end":       {sizeBytes: miB, bitmap: "b", answer: extents(miB, 0, miB, 1)},
		"no such bitmap":     {sizeBytes: miB, bitmap: "other", answer: extents(miB, 0)},
		"refused":            {sizeBytes: miB, bitmap: "b", answer: extents(miB, 0), fail: true},
		"no size":            {bitmap: "b", noSize: true, answer: extents(miB, 0)},
	} {
		if got, _, err := nbd.DirtyRanges(t.Context(), s.listen(t), "e", "b"); err == nil {
			t.Errorf("%s: %v, and no error", name, got)
		}
	}
}

func TestAServerThatIsSilentIsLeftWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path) // accepts, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stop := errors.New("stop")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, stop)
	defer cancel()
	if _, _, err := nbd.DirtyRanges(ctx, path, "e", "b"); !errors.Is(err, stop) {
		t.Errorf("error %v, want that of the context", err)
	}
}
