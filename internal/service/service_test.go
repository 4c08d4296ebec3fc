// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// task is ready when release is closed, and ends with err.
type task struct {
	name    string
	release chan struct{}
	err     error
	ended   bool
}

func (t *task) Run(ctx context.Context) error {
	if t.err != nil {
		return t.err
	}
	<-ctx.Done()
	t.ended = true
	return nil
}
func (t *task) Ready() <-chan struct{} { return t.release }
func (t *task) String() string         { return t.name }

// systemd listens at a notification socket and returns the notifications.
func systemd(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	told := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 4096); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			told <- string(b[:n])
		}
	}()
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return told
}

func await(t *testing.T, told <-chan string, want string) {
	t.Helper()
	for {
		select {
		case got := <-told:
			if strings.Contains(got, want) {
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("systemd was never told %q", want)
		}
	}
}

func TestSystemdHearsReadyOnlyWhenEveryTaskIs(t *testing.T) {
	told := systemd(t)
	a, b := &task{name: "a", release: make(chan struct{})}, &task{name: "b", release: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx, quiet, new(service.Health), a, b) }()

	if got := <-told; got != "STATUS=starting: a, b" {
		t.Errorf("first told %q", got)
	}
	close(a.release)
	if got := <-told; got != "STATUS=starting: b" {
		t.Errorf("then told %q", got)
	}
	close(b.release)
	if got := <-told; !strings.HasPrefix(got, "READY=1") {
		t.Errorf("then told %q", got)
	}
	cancel()
	await(t, told, "STOPPING=1")
	if err := <-done; err != nil || !a.ended || !b.ended {
		t.Errorf("Run = %v, ended: a %t, b %t", err, a.ended, b.ended)
	}
}

func TestWatchdogIsKeptContent(t *testing.T) {
	told := systemd(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx, quiet, new(service.Health)) }()
	await(t, told, "WATCHDOG=1")
	await(t, told, "WATCHDOG=1")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFailedTaskEndsTheOthersAndIsNamed(t *testing.T) {
	broken := errors.New("broken")
	a, b := &task{name: "a"}, &task{name: "b", err: broken}
	err := service.Run(t.Context(), quiet, new(service.Health), a, b)
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "b: ") || !a.ended {
		t.Errorf("Run = %v, a ended = %t", err, a.ended)
	}
}

func TestSignalStopsTheTasks(t *testing.T) {
	told := systemd(t)
	a := &task{name: "a", release: make(chan struct{})}
	close(a.release)
	done := make(chan error, 1)
	go func() { done <- service.Run(t.Context(), quiet, new(service.Health), a) }()
	await(t, told, "READY=1")
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !a.ended {
		t.Errorf("Run = %v, ended = %t", err, a.ended)
	}
}

// start runs s until the returned function is called. That function returns Run's error.
func start(t *testing.T, s service.Task) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		t.Fatalf("the server did not start: %v", err)
	}
	return func() error { cancel(); return <-done }
}

func fetch(t *testing.T, network, address, path string) (*http.Response, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return (&http.Client{Transport: transport}).Do(r)
}

func TestSocketIsPrivateAndGoneAfterwards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "s.sock")
	defer syscall.Umask(syscall.Umask(0o077))
	stop := start(t, service.SocketServer(path, os.Getgid(), http.NotFoundHandler(), quiet))
	for p, want := range map[string]os.FileMode{path: 0o660, filepath.Dir(path): 0o700} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("mode of %s = %o, want %o", p, info.Mode().Perm(), want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestOnlyAStaleSocketIsReplaced(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stop := start(t, service.SocketServer(stale, -1, http.NotFoundHandler(), quiet))

	if err := service.SocketServer(stale, -1, http.NotFoundHandler(), quiet).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another process is listening") {
		t.Errorf("a socket in use: error = %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := service.SocketServer(file, -1, http.NotFoundHandler(), quiet).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: error = %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file now holds %q (%v)", b, err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 120))
	if err := service.SocketServer(long, -1, http.NotFoundHandler(), quiet).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a long path: error = %v", err)
	}
}

func TestStopEndsStreamsAndLetsShortRequestsFinish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	inside, finish := make(chan struct{}, 2), make(chan struct{})
	stop := start(t, service.SocketServer(path, -1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		if r.URL.Path == "/stream" {
			<-r.Context().Done()
			return
		}
		<-finish
		_, _ = w.Write([]byte("done"))
	}), quiet))
	answers := make(chan string, 2)
	for _, p := range []string{"/stream", "/short"} {
		go func() {
			resp, err := fetch(t, "unix", path, p)
			if err != nil {
				answers <- p + " " + err.Error()
				return
			}
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			answers <- p + " " + string(b)
		}()
	}
	<-inside
	<-inside
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(finish)
	got := map[string]bool{<-answers: true, <-answers: true}
	if !got["/short done"] || !got["/stream "] {
		t.Errorf("answers = %v", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestMetricsServerServesNothingElse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only to find a free port
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stop := start(t, service.MetricsServer(address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), new(service.Health), quiet))
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 503, "/v1/volumes": 404} {
		resp, err := fetch(t, "tcp", address, path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("GET %s = %d (%v), want %d", path, resp.StatusCode, err, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestLogHasATime(t *testing.T) {
	var b bytes.Buffer
	log, err := service.NewLogger(&b, "info")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	log.Info("shown")
	if s := b.String(); !strings.HasPrefix(s, "time=") || strings.Contains(s, "hidden") {
		t.Errorf("log = %q", s)
	}

	if _, err := service.NewLogger(&b, "loud"); err == nil {
		t.Error("the level \"loud\" was taken")
	}
}
