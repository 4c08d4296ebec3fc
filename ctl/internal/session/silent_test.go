// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/routes"
)

// firstWrite calls then at the first write.
type firstWrite struct {
	bytes.Buffer
	then func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	defer w.then()
	return w.Buffer.Write(p)
}

// silent returns a client of a socket that accepts connections and never answers.
func silent(t *testing.T) (*client.Client, net.Listener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := client.New(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, l
}

// A socket of systemd accepts connections while the daemon does not start.
func TestAReadThatNobodyAnswersSaysWhatItWaitsFor(t *testing.T) {
	c, l := silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	stderr := firstWrite{then: cancel}
	s := Session{Client: c, Stderr: &stderr}
	if _, err := Get(ctx, &s, routes.ListVolumes); err == nil || errors.Is(err, ErrMaybeDone) {
		t.Errorf("a read without an answer: %v", err)
	}
	if _, err := Send(ctx, &s, routes.DeleteVolume, routes.None{}, "db"); !errors.Is(err, ErrMaybeDone) {
		t.Errorf("a change without an answer: %v, want that it may have been done", err)
	}
	if got, want := stderr.String(), "Waiting for an answer from "+l.Addr().String()+" (3s); if no answer comes, 'systemctl status volferryd' or 'volferryd check-config' shows why.\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

func TestAnAnswerThatNeverComesNamesWhatSaysWhy(t *testing.T) {
	for target, want := range map[string]string{
		"/run/other.sock": "'systemctl status volferryd' shows why it does not run, and 'volferryd check-config'",
		RegistrySocket:    "'systemctl status volferry-registry' shows why it does not run, and 'volferry-registry check-config'",
	} {
		c, err := client.New(target)
		if err != nil {
			t.Fatal(err)
		}
		s := Session{Client: c}
		var advised *AdvisedError
		if err := s.explainUnreachable(t.Context(), api.Errorf(CodeUnreachable, "no answer")); !errors.As(err, &advised) || !strings.Contains(advised.Advice, want) {
			t.Errorf("%s: %v, want the advice %q", target, err, want)
		}
	}
}

// The checks of doctor take longer than the first notice on a slow machine.
func TestADoctorThatTakesLongIsSaidToBeChecking(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == routes.RunDoctor.Path {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"schema_version":1,"version":"1.0.0"}`))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	c, err := client.New(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	stderr := firstWrite{then: cancel}
	s := Session{Client: c, Stderr: &stderr}
	if _, err := Get(ctx, &s, routes.RunDoctor); err == nil {
		t.Error("the checks have ended")
	}
	if got, want := stderr.String(), "Waiting for the checks of this host, which volferryd is still making (3s); Ctrl-C ends the waiting.\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}
