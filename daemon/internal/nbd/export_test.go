// SPDX-License-Identifier: Apache-2.0

package nbd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/test/lab"
)

// serve lets QEMU serve an image with this content.
func serve(t *testing.T, content []byte) *lab.Export {
	t.Helper()
	if _, err := exec.LookPath("qemu-nbd"); err != nil {
		t.Skip("SKIPPED: no qemu-nbd: ", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "image")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := lab.Serve(t.Context(), file, "web", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func open(t *testing.T, socket, name string) *nbd.Export {
	t.Helper()
	e, err := nbd.Open(t.Context(), nil, medium.NBDExport{Socket: socket, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// stuck is a connection that receives nothing any more once now is set.
type stuck struct {
	net.Conn

	now    atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (s *stuck) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.now.Load() {
		<-s.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (s *stuck) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// deaf is a connection with a peer that reads nothing any more once now is set: its buffers are
// full.
type deaf struct {
	stuck
}

func (d *deaf) Write(p []byte) (int, error) {
	if d.now.Load() {
		<-d.closed
		return 0, net.ErrClosed
	}
	return d.Conn.Write(p)
}

// A capped copy has one request under way, so no call waits for an answer while it is sent.
func TestAStorageThatReadsNoRequestIsGivenUp(t *testing.T) {
	server := serve(t, make([]byte, miB))
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "unix", server.Socket)
	if err != nil {
		t.Fatal(err)
	}
	conn := &deaf{stuck{Conn: raw, closed: make(chan struct{})}}
	e, err := nbd.OpenOn(t.Context(), conn, "web", 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	conn.now.Store(true)
	if _, err := e.WriteAt(make([]byte, miB), 0); !errors.Is(err, unix.ENOLINK) || !strings.Contains(err.Error(), "has not answered for") {
		t.Errorf("a request that is not read ends with %v", err)
	}
}

func TestAStorageThatDoesNotAnswerIsGivenUp(t *testing.T) {
	server := serve(t, make([]byte, miB))
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "unix", server.Socket)
	if err != nil {
		t.Fatal(err)
	}
	conn := &stuck{Conn: raw, closed: make(chan struct{})}
	e, err := nbd.OpenOn(t.Context(), conn, "web", 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.ReadAt(make([]byte, 512), 0); err != nil {
		t.Fatal(err)
	}
	conn.now.Store(true)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := e.ReadAt(make([]byte, 512), 0); !errors.Is(err, unix.ENOLINK) || !strings.Contains(err.Error(), "has not answered for") {
				t.Errorf("a request without an answer ends with %v", err)
			}
		})
	}
	all.Wait()
}

func TestWhatIsWrittenToAnExportIsReadFromItAndIsInItsImage(t *testing.T) {
	content := make([]byte, 8*miB)
	_, _ = rand.Read(content[miB : 3*miB])
	server := serve(t, content)
	e := open(t, server.Socket, "web")
	if e.SizeBytes() != int64(len(content)) || e.ReadOnly() {
		t.Fatalf("%d bytes, read-only %v", e.SizeBytes(), e.ReadOnly())
	}
	var all sync.WaitGroup
	for off := int64(0); off < int64(len(content)); off += miB / 2 {
		all.Go(func() {
			p := make([]byte, miB/2)
			if _, err := e.ReadAt(p, off); err != nil || !bytes.Equal(p, content[off:off+miB/2]) {
				t.Errorf("what is read at %d is something else: %v", off, err)
			}
		})
	}
	all.Wait()
	for off := int64(0); off < int64(len(content)); off += miB {
		all.Go(func() {
			p := content[off : off+miB]
			if off >= 6*miB {
				clear(p)
				if err := e.ZeroAt(off, miB); err != nil {
					t.Error(err)
				}
				return
			}
			_, _ = rand.Read(p)
			if _, err := e.WriteAt(p, off); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(e.Flush(), e.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(server.File); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the image holds something else: %v", err)
	}
}

func TestTheExtentsOfAnExportAreThoseOfItsImage(t *testing.T) {
	server := serve(t, nil)
	f, err := os.OpenFile(server.File, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_ = server.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{1}, miB), 4*miB); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(16 * miB); err != nil {
		t.Fatal(err)
	}
	if err := server.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := open(t, server.Socket, "web")
	type extent struct {
		until int64
		data  bool
	}
	var got []extent
	for off := int64(0); off < e.SizeBytes(); {
		until, data, err := e.Extent(off)
		if err != nil || until <= off {
			t.Fatalf("extent at %d until %d, %v", off, until, err)
		}
		got = append(got, extent{until, data})
		off = until
	}
	want := []extent{{4 * miB, false}, {5 * miB, true}, {16 * miB, false}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("extents %v, want %v", got, want)
	}
}

func TestACallOnAConnectionThatIsLostFailsAndSaysSo(t *testing.T) {
	server := serve(t, make([]byte, miB))
	e := open(t, server.Socket, "web")
	_ = server.Close()
	for range 2 {
		if _, err := e.ReadAt(make([]byte, 512), 0); !errors.Is(err, unix.ENOLINK) {
			t.Errorf("read: %v, want ENOLINK", err)
		}
	}
	if err := e.Flush(); !errors.Is(err, unix.ENOLINK) {
		t.Errorf("flush: %v, want ENOLINK: what was written may be lost", err)
	}
	if _, err := nbd.Open(t.Context(), nil, medium.NBDExport{Socket: server.Socket, Name: "web"}); err == nil {
		t.Error("an export of no server was opened")
	}
}

func TestAnExportThatThereIsNotIsRefusedByTheServer(t *testing.T) {
	server := serve(t, make([]byte, miB))
	if _, err := nbd.Open(t.Context(), nil, medium.NBDExport{Socket: server.Socket, Name: "other"}); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("got %v", err)
	}
}

// answering returns a server that answers each request in this way.
func answering(t *testing.T, answer func(cookie []byte) []byte) *nbd.Export {
	t.Helper()
	s := &server{sizeBytes: miB, raw: answer}
	return open(t, s.listen(t), "e")
}

// reply returns the last chunk of a structured reply.
func reply(cookie []byte, kind uint16, payload []byte) []byte {
	b := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, 0x668e33ef), 1), kind)
	return append(be.AppendUint32(append(b, cookie...), uint32(len(payload))), payload...)
}

// more returns a chunk of a structured reply that is not the last.
func more(cookie []byte, kind uint16, payload []byte) []byte {
	b := reply(cookie, kind, payload)
	b[5] = 0
	return b
}

// pieceOf returns read data with b as each byte.
func pieceOf(off uint64, n int, b byte) []byte {
	return append(be.AppendUint64(nil, off), bytes.Repeat([]byte{b}, n)...)
}

func TestAReadThatIsAnsweredTwiceInOnePlaceIsAnError(t *testing.T) {
	for name, answer := range map[string]func(c []byte) []byte{
		"one half twice": func(c []byte) []byte {
			return append(more(c, 1, pieceOf(0, 256, 1)), reply(c, 1, pieceOf(0, 256, 1))...)
		},
		"pieces that overlap": func(c []byte) []byte {
			return append(more(c, 1, pieceOf(256, 256, 1)), reply(c, 1, pieceOf(255, 256, 1))...)
		},
		"a hole in data": func(c []byte) []byte {
			return append(more(c, 1, pieceOf(0, 256, 1)), reply(c, 2, be.AppendUint32(be.AppendUint64(nil, 128), 256))...)
		},
	} {
		if _, err := answering(t, answer).ReadAt(make([]byte, 512), 0); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestThePiecesOfAReadComeInAnyOrder(t *testing.T) {
	e := answering(t, func(c []byte) []byte {
		return slices.Concat(more(c, 1, pieceOf(256, 128, 3)), more(c, 2, be.AppendUint32(be.AppendUint64(nil, 384), 128)),
			more(c, 1, pieceOf(0, 64, 1)), more(c, 1, pieceOf(128, 128, 2)), reply(c, 1, pieceOf(64, 64, 1)))
	})
	got := bytes.Repeat([]byte{9}, 512)
	want := slices.Concat(bytes.Repeat([]byte{1}, 128), bytes.Repeat([]byte{2}, 128), bytes.Repeat([]byte{3}, 128), make([]byte, 128))
	if _, err := e.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %x, %v", got, err)
	}
}

func TestAReadThatIsAnsweredInPartIsAnError(t *testing.T) {
	data := func(off uint64, n int) []byte { return append(be.AppendUint64(nil, off), make([]byte, n)...) }
	for name, answer := range map[string]func(cookie []byte) []byte{
		"half of it":          func(c []byte) []byte { return reply(c, 1, data(0, 256)) },
		"nothing":             func(c []byte) []byte { return reply(c, 0, nil) },
		"a hole of half":      func(c []byte) []byte { return reply(c, 2, be.AppendUint32(be.AppendUint64(nil, 0), 256)) },
		"more than was asked": func(c []byte) []byte { return reply(c, 1, data(0, 1024)) },
		"other bytes":         func(c []byte) []byte { return reply(c, 1, data(4096, 512)) },
		"before the range":    func(c []byte) []byte { return reply(c, 1, data(1<<63, 512)) },
		"an error":            func(c []byte) []byte { return reply(c, 1<<15|1, []byte{0, 0, 0, 5, 0, 0}) },
		"half an error":       func(c []byte) []byte { return reply(c, 1<<15|1, []byte{0, 0, 0, 5, 0, 9}) },
		"another request":     func([]byte) []byte { return reply([]byte("somebody"), 1, data(0, 512)) },
		"no reply":            func([]byte) []byte { return make([]byte, 64) },
		"a simple reply": func(c []byte) []byte {
			return append(be.AppendUint32(be.AppendUint32(nil, 0x67446698), 0), append(c, make([]byte, 512)...)...)
		},
	} {
		if _, err := answering(t, answer).ReadAt(make([]byte, 512), 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAnErrorOfTheServerHasItsNumber(t *testing.T) {
	e := answering(t, func(c []byte) []byte { return reply(c, 1<<15|1, append([]byte{0, 0, 0, 28, 0, 4}, "full"...)) })
	if _, err := e.WriteAt(nil, 0); err != nil {
		t.Errorf("a write of nothing: %v", err)
	}
	if _, err := e.ReadAt(make([]byte, 512), 0); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
}

func TestARequestBeyondTheEndIsNotSent(t *testing.T) {
	e := answering(t, func([]byte) []byte { t.Error("it was sent"); return nil })
	for _, off := range []int64{-1, miB - 511, miB} {
		if _, err := e.ReadAt(make([]byte, 512), off); err == nil {
			t.Errorf("read at %d: no error", off)
		}
	}
}

func TestARequestThatIsNeverAnsweredEndsWithTheContext(t *testing.T) {
	s := &server{sizeBytes: miB, raw: func([]byte) []byte { return nil }}
	ctx, cancel := context.WithCancelCause(t.Context())
	silent, err := nbd.Open(ctx, nil, medium.NBDExport{Socket: s.listen(t), Name: "e"})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	stop := errors.New("stop")
	time.AfterFunc(20*time.Millisecond, func() { cancel(stop) })
	if _, err := silent.ReadAt(make([]byte, 512), 0); !errors.Is(err, stop) {
		t.Errorf("got %v, want that of the context", err)
	}
}

func TestAServerOverTCPIsConnectedToByTheCallersDialAlone(t *testing.T) {
	server := serve(t, make([]byte, miB))
	var asked []string
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		asked = append(asked, address)
		return new(net.Dialer).DialContext(ctx, "unix", server.Socket) // plays a connection from another process
	}
	e, err := nbd.Open(t.Context(), dial, medium.NBDExport{Name: "web", Server: "nbd.example:10809"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); e.SizeBytes() != miB || err != nil || len(asked) != 1 || asked[0] != "nbd.example:10809" {
		t.Errorf("%d bytes by %v, %v", e.SizeBytes(), asked, err)
	}
	refused := errors.New("refused")
	dial = func(context.Context, string) (net.Conn, error) { return nil, refused }
	if _, err := nbd.Open(t.Context(), dial, medium.NBDExport{Server: "nbd.example:10809"}); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}
