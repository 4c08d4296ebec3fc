// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/quota"
)

// listen opens a socket as systemd does. It has no file, so any user can connect.
func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	address := &net.UnixAddr{Name: "@volferry-" + strings.ReplaceAll(t.Name(), "/", "-"), Net: "unixpacket"}
	l, err := net.ListenUnix("unixpacket", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // it may be closed
	return l, address.Name
}

// serving runs a server until the test ends, and returns its socket.
func serving(t *testing.T, run func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error) string {
	t.Helper()
	l, socket := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, l, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func file(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The result does not depend on the program that makes the calls.
func TestPrivilegedCallsAreOfDevicesAndLibvirtsAttributesAlone(t *testing.T) {
	for who, p := range map[string]Privileged{"itself": {}, "another program": {Socket: serving(t, ServePrivileged)}} {
		t.Run(who, func(t *testing.T) {
			f := file(t)
			if err := p.Flush(t.Context(), f); err == nil || !strings.Contains(err.Error(), "no block device") {
				t.Errorf("a file is flushed as a device: %v", err)
			}
			if _, err := p.Attribute(t.Context(), f, "trusted.secret"); err == nil || !strings.Contains(err.Error(), "none of libvirt's") {
				t.Errorf("any attribute is read: %v", err)
			}
			if _, err := p.Attribute(t.Context(), f, AttrOwnerBefore); !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("an attribute that is not there: %v", err)
			}
			// No filesystem has quotas of this user.
			if limits, err := p.Quotas(t.Context(), f, quota.Owner{User: 54321, Group: 54321, Project: 54321}); err != nil || len(limits) != 0 {
				t.Errorf("the limits of nobody are %+v, %v", limits, err)
			}
			if n, err := p.ThinBlockBytes(t.Context(), f); n != 0 || err != nil {
				t.Errorf("a file is asked about as a device: %d, %v", n, err)
			}
			if err := unix.Fsetxattr(int(f.Fd()), AttrOwnerBefore, []byte("+1:+2"), 0); err != nil {
				t.Skipf("SKIPPED: no trusted attributes here: %v", err)
			}
			if value, err := p.Attribute(t.Context(), f, AttrOwnerBefore); err != nil || string(value) != "+1:+2" {
				t.Errorf("read %q, %v", value, err)
			}
		})
	}
}

func TestAThinDeviceIsAskedForAtTheDeviceMapperAlone(t *testing.T) {
	socket := serving(t, ServePrivileged)
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, call := range []string{callThin, callThinPool} {
		if _, _, err := ask(t.Context(), socket, request{Call: call, Device: unix.Mkdev(253, 0)}, null); err == nil || !strings.Contains(err.Error(), "not the control") {
			t.Errorf("%s: another device is asked: %v", call, err)
		}
	}
}

func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to ask as another user")
	}
	p := Privileged{Socket: serving(t, ServePrivileged)}
	f := file(t)
	asked := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			asked <- nil
			return
		}
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: p.Socket, Net: "unixpacket"})
		if err == nil {
			err = send(conn, request{Call: callAttribute, Name: AttrOwnerBefore}, f)
		}
		if err == nil {
			var out answer
			_, err = receive(conn, &out)
		}
		asked <- err
	}()
	if err := <-asked; err == nil {
		t.Error("a request of nobody's is answered")
	}
	if _, err := p.Attribute(t.Context(), f, AttrOwnerBefore); !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a request of root's after it: %v", err)
	}
}

func TestARequestIsMadeAgainIfItsAnswerDoesNotCome(t *testing.T) {
	socket := serving(t, func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error {
		conn, err := l.AcceptUnix()
		if err == nil {
			err = conn.Close() // as a restarted program does
		}
		return errors.Join(err, ServePrivileged(ctx, l, log))
	})
	if _, err := (Privileged{Socket: socket}).Attribute(t.Context(), file(t), AttrOwnerBefore); !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("after a first try without an answer: %v", err)
	}
}

func TestASocketThatIsAwayIsNoMissingFile(t *testing.T) {
	err := Privileged{Socket: "/nowhere/privileged.sock"}.Flush(t.Context(), file(t))
	if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "systemctl status volferryd-privileged.socket") {
		t.Errorf("got %v", err)
	}
}

func TestAConnectionOutlivesTheDialerThatMadeIt(t *testing.T) {
	registry, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it stands for another program
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = registry.Close() }()
	l, socket := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- ServeDialer(ctx, l, func() ([]string, error) { return []string{registry.Addr().String()}, nil }, slog.New(slog.DiscardHandler))
	}()
	conn, err := Dial(t.Context(), socket, registry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	served, err := registry.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = served.Close() }()
	if _, err := served.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := conn.Read(got); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestADialFailsAsItWouldHere(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it stands for another program
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	socket := serving(t, func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error {
		return ServeDialer(ctx, l, func() ([]string, error) { return []string{closed.Addr().String()}, nil }, log)
	})
	var op *net.OpError
	if _, err := Dial(t.Context(), socket, closed.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("where nobody listens: %v", err)
	}
}

func TestTheDialerConnectsToWhatTheConfigurationNamesAndNothingElse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it stands for another program
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	socket := serving(t, func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error {
		return ServeDialer(ctx, l, func() ([]string, error) { return []string{"a:1", "b:1"}, nil }, log)
	})
	if _, err := Dial(t.Context(), socket, other.Addr().String()); err == nil || !strings.Contains(err.Error(), "by the configuration") {
		t.Errorf("got %v", err)
	}
}

func TestADialSaysWhyThereIsNoAddress(t *testing.T) {
	socket := serving(t, func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error {
		return ServeDialer(ctx, l, func() ([]string, error) { return nil, errors.New("the registry is a socket of this host") }, log)
	})
	if _, err := Dial(t.Context(), socket, "a:1"); err == nil || !strings.Contains(err.Error(), "a socket of this host") {
		t.Errorf("got %v", err)
	}
}

func TestAConnectorIsAskedByTheNameOfItsPool(t *testing.T) {
	run := func(_ context.Context, pool string, text []byte) ([]byte, error) {
		if pool != "fast" {
			return nil, errors.New("there is no pool " + pool)
		}
		return append([]byte("asked "), text...), nil
	}
	socket := serving(t, func(ctx context.Context, l *net.UnixListener, log *slog.Logger) error {
		return ServeConnectors(ctx, l, run, log)
	})
	if out, err := Connector(t.Context(), socket, "fast", []byte("inspect")); err != nil || string(out) != "asked inspect" {
		t.Errorf("answered %q, %v", out, err)
	}
	if _, err := Connector(t.Context(), socket, "slow", nil); err == nil || err.Error() != "there is no pool slow" {
		t.Errorf("another pool: %v", err)
	}
	if _, _, err := ask(t.Context(), socket, request{Call: callFlush}, nil); err == nil || !strings.Contains(err.Error(), "no call") {
		t.Errorf("another call: %v", err)
	}
}

// TestWhatAConnectorDoesIsDoneToItsEnd, although the program that runs it is told to stop.
func TestWhatAConnectorDoesIsDoneToItsEnd(t *testing.T) {
	l, socket := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	begun, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- ServeConnectors(ctx, l, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			close(begun)
			<-goOn
			return []byte("done"), ctx.Err()
		}, slog.New(slog.DiscardHandler))
	}()
	answered := make(chan error, 1)
	go func() {
		out, err := Connector(t.Context(), socket, "fast", nil)
		if err == nil && string(out) != "done" {
			err = errors.New("answered " + string(out))
		}
		answered <- err
	}()
	<-begun
	stop()
	close(goOn)
	if err := errors.Join(<-answered, <-ended); err != nil {
		t.Error(err)
	}
}
