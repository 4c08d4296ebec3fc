// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echo is a storage with images that echo their input.
type echo struct{ ended chan string }

func (echo) Check(_ context.Context, cluster string, _ *os.File) error {
	return errors.New(cluster + " is away")
}

func (echo) Look(_ context.Context, address string, key *os.File) ([]byte, error) {
	text, err := io.ReadAll(key)
	switch {
	case err != nil:
		return nil, err
	case address == "gone":
		return nil, fmt.Errorf("there is none: %w", unix.ENOENT)
	}
	return []byte(address + " with " + string(text)), nil
}

func (echo) Watchers(_ context.Context, address string, _ *os.File) ([]byte, error) {
	return []byte("those of " + address), nil
}

func (echo) Snapshot(_ context.Context, address string, query []byte, _ *os.File) ([]byte, error) {
	return []byte(string(query) + " of " + address), nil
}

func (echo) Change(_ context.Context, address string, change []byte, _ *os.File) error {
	if string(change) == "taken" {
		return fmt.Errorf("%s is there: %w", address, unix.EEXIST)
	}
	return nil
}

func (e echo) Open(_ context.Context, address string, writable bool, _ *os.File) (*os.File, func() error, error) {
	if !writable {
		return nil, nil, errors.New("it is only written to")
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	server := os.NewFile(uintptr(ends[1]), "server")
	go func() {
		_, _ = io.Copy(server, server)
		_ = server.Close()
	}()
	return os.NewFile(uintptr(ends[0]), "client"), func() error { e.ended <- address; return nil }, nil
}

// keyFile returns a file with "key".
func keyFile(t *testing.T) *os.File {
	t.Helper()
	f := file(t)
	if _, err := f.WriteString("key"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return f
}

func servingStorage(t *testing.T) (socket string, ended chan string) {
	t.Helper()
	ended = make(chan string, maxOpen+1)
	return serving(t, func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error {
		return ServeStorage(ctx, l, echo{ended}, log)
	}), ended
}

func TestStorageLooksWithTheKeyThatItIsHandedAndSaysThatThereIsNothing(t *testing.T) {
	socket, _ := servingStorage(t)
	if text, err := LookAtStorage(t.Context(), socket, "web", keyFile(t)); err != nil || string(text) != "web with key" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := WatchersOfStorage(t.Context(), socket, "web", keyFile(t)); err != nil || string(text) != "those of web" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := SnapshotOfStorage(t.Context(), socket, "web", []byte("that"), keyFile(t)); err != nil || string(text) != "that of web" {
		t.Errorf("%q, %v", text, err)
	}
	for change, want := range map[string]error{"taken": unix.EEXIST, "free": nil} {
		if err := ChangeStorage(t.Context(), socket, "web", []byte(change), keyFile(t)); !errors.Is(err, want) {
			t.Errorf("the change of what is %s: %v", change, err)
		}
	}
	if _, err := LookAtStorage(t.Context(), socket, "gone", keyFile(t)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an image that is not there: %v", err)
	}
	if err := CheckStorage(t.Context(), socket, "the cluster", keyFile(t)); err == nil || err.Error() != "the cluster is away" {
		t.Errorf("the check of a cluster: %v", err)
	}
	if _, err := LookAtStorage(t.Context(), socket, "web", nil); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("without a key: %v", err)
	}
}

func TestAnImageTooManyIsRefusedAndHoldsUpNothing(t *testing.T) {
	socket, _ := servingStorage(t)
	var open []net.Conn
	for range maxOpen {
		conn, err := OpenStorage(t.Context(), socket, "web", true, keyFile(t))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	defer func() {
		for _, conn := range open {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	if _, err := OpenStorage(t.Context(), socket, "web", true, keyFile(t)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxOpen)) {
		t.Errorf("one more is %v", err)
	}
	if _, err := LookAtStorage(t.Context(), socket, "web", keyFile(t)); err != nil {
		t.Errorf("a look: %v", err)
	}
	if err := open[0].Close(); err != nil {
		t.Error(err)
	}
	conn, err := OpenStorage(t.Context(), socket, "web", true, keyFile(t))
	if err != nil {
		t.Fatalf("once one was closed: %v", err)
	}
	open[0] = conn
}

func TestWhatServesAnImageLivesAsLongAsItsConnection(t *testing.T) {
	socket, ended := servingStorage(t)
	if _, err := OpenStorage(t.Context(), socket, "web", false, keyFile(t)); err == nil || !strings.Contains(err.Error(), "only written to") {
		t.Errorf("a refusal is %v", err)
	}
	conn, err := OpenStorage(t.Context(), socket, "web", true, keyFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("said")); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4)
	if _, err := io.ReadFull(conn, p); err != nil || string(p) != "said" {
		t.Errorf("%q, %v", p, err)
	}
	select {
	case address := <-ended:
		t.Fatalf("%s has ended under its client", address)
	case <-time.After(50 * time.Millisecond):
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended: // before Close has returned
	default:
		t.Error("the connection is closed, and the image is served still")
	}
	if err := conn.Close(); err != nil {
		t.Error("closed once more: ", err)
	}
}
