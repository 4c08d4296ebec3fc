// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// serve serves h at path until the test ends.
func serve(t *testing.T, path string, h http.Handler) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(t.Context()), "unix", path)
	if err != nil {
		t.Error(err)
		return
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(srv.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
}

func newClient(t *testing.T, target string, settings ...client.Setting) *client.Client {
	t.Helper()
	c, err := client.New(target, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func answering(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

func TestTargetsThatAreRefused(t *testing.T) {
	for _, target := range []string{"", "relative.sock", "unix://relative.sock", "https://host:7643", "http://host", "https://", "https://host:0", "https://host:x", "https://u@host", "https://host/v1", "https://host?x"} {
		if _, err := client.New(target); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("New(%q) error = %v, want invalid_argument", target, err)
		}
	}
}

func TestRequestCarriesBodyAndKeyAndAnswerIsUnwrapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var got []string
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		got = append(got, r.Method, r.URL.String(), r.Header.Get(api.IdempotencyKeyHeader), fmt.Sprint(in))
		_, _ = w.Write([]byte(`{"schema_version":1,"volume":{"name":"a"}}`))
	}))
	var v api.Volume
	c := newClient(t, "unix://"+path)
	if err := c.Do(t.Context(), "POST", "/v1/volumes?x=1", map[string]int{"n": 1}, &v, client.IdempotencyKey("op-1")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"POST", "/v1/volumes?x=1", "op-1", "map[n:1]"}, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if v.Name != "a" {
		t.Errorf("answer = %+v", v)
	}
}

func TestAnswerWithSeveralNounsIsKeptWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, answering(202, `{"schema_version":1,"op":{"id":"o"},"migration":{"id":"m"}}`))
	var out struct {
		Op        api.Op
		Migration api.Migration
	}
	if err := newClient(t, path).Do(t.Context(), "GET", "/", nil, &out); err != nil {
		t.Fatal(err)
	}
	if out.Op.ID != "o" || out.Migration.ID != "m" {
		t.Errorf("answer = %+v", out)
	}
}

func TestErrorsOfTheDaemonComeBackAsTheyAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, answering(409, `{"error":{"code":"multiattached","message":"cannot","details":{"n":2}}}`))
	err := newClient(t, path).Do(t.Context(), "GET", "/", nil, nil)
	want := &api.Error{Code: api.CodeMultiattached, Message: "cannot", Details: map[string]any{"n": 2.0}}
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestAnswersThatAreNotOurs(t *testing.T) {
	for name, h := range map[string]http.Handler{
		"another program": answering(404, "not here"),
		"no JSON":         answering(200, "hello"),
		"newer schema":    answering(200, `{"schema_version":2,"volume":{}}`),
		"no version":      answering(200, `{"volume":{}}`),
		"wrong kind":      answering(200, `{"schema_version":1,"volume":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			serve(t, path, h)
			var v api.Volume
			if err := newClient(t, path).Do(t.Context(), "GET", "/", nil, &v); api.CodeOf(err) != api.CodeInternal {
				t.Errorf("error = %v, want internal", err)
			}
		})
	}
}

func TestNobodyListeningIsUnavailableAndNamesTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"no such socket": path + "x", "stale socket": path} {
		t.Run(name, func(t *testing.T) {
			err := newClient(t, target, client.UnavailableAs(api.CodeRegistryUnavailable)).Do(t.Context(), "GET", "/", nil, nil)
			if api.CodeOf(err) != api.CodeRegistryUnavailable || !strings.Contains(err.Error(), target) {
				t.Errorf("error = %v, want registry_unavailable that names %s", err, target)
			}
		})
	}
}

func TestRequestsWithAKeySayForWhomTheyAreMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var said []string
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said = append(said, r.Header.Get(api.CallerHeader))
		_, _ = io.WriteString(w, `{"schema_version":1}`)
	}))
	c := newClient(t, path, client.As(func() (string, int64) { return "h", 1 }), client.ForCaller(func(key string) string {
		return map[string]string{"op-1.register": "ann"}[key]
	}))
	for _, key := range []string{"op-1.register", "op-2", ""} {
		if err := c.Do(t.Context(), "POST", "/", nil, nil, client.IdempotencyKey(key)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"ann", "", ""}; !slices.Equal(said, want) {
		t.Errorf("requests said %q, want %q", said, want)
	}
}

func TestSocketThatMayNotBeOpenedSaysWhoMay(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may open every socket")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	serve(t, path, answering(200, ""))
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := newClient(t, path).Do(t.Context(), "GET", "/", nil, nil); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("error = %v, want permission_denied", err)
	}
}

func TestBrokenConnectionSaysThatItMayBeDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	err := newClient(t, path).Do(t.Context(), "POST", "/", nil, nil)
	if api.CodeOf(err) != api.CodeHypervisorUnavailable || api.AsError(err).Details["maybe_done"] != true {
		t.Errorf("error = %#v, want hypervisor_unavailable with maybe_done", err)
	}
}

func TestEndedContextComesBackAsItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	serve(t, path, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	if err := newClient(t, path).Do(ctx, "GET", "/", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled", err)
	}
}

func TestStreamYieldsEventsThenHowItEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "{\"seq\":1,\"what\":\"a\"}\n{\"seq\":2,\"what\":\"b\"}\n")
		if r.URL.Path == "/cut" {
			_, _ = w.Write([]byte(`{"seq":3`))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	c := newClient(t, path)
	for where, wantErr := range map[string]api.Code{"/whole": "", "/cut": api.CodeHypervisorUnavailable} {
		var (
			seqs []int64
			last error
		)
		for e, err := range c.Stream(t.Context(), where) {
			if last = err; err == nil {
				seqs = append(seqs, e.Seq)
			}
		}
		if diff := cmp.Diff([]int64{1, 2}, seqs); diff != "" || api.CodeOf(last) != wantErr {
			t.Errorf("%s: ended with %v (-want +got):\n%s", where, last, diff)
		}
	}
	for e, err := range c.Stream(t.Context(), "/whole") {
		if e.Seq != 1 || err != nil {
			t.Errorf("first = %+v, %v", e, err)
		}
		break
	}
}

func TestADaemonThatHangsIsUnavailableAfterTheTimeout(t *testing.T) {
	release := make(chan struct{})
	target := filepath.Join(t.TempDir(), "s")
	serve(t, target, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release) })
	c := newClient(t, target, client.UnavailableAs(api.CodeRegistryUnavailable), client.Timeout(20*time.Millisecond))
	err := c.Do(t.Context(), http.MethodGet, "/", nil, nil)
	if api.CodeOf(err) != api.CodeRegistryUnavailable {
		t.Errorf("got %v, want registry_unavailable", err)
	}
}

func TestARequestMayHaveABoundOfItsOwn(t *testing.T) {
	release := make(chan struct{})
	target := filepath.Join(t.TempDir(), "s")
	serve(t, target, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release) })
	c := newClient(t, target, client.UnavailableAs(api.CodeRegistryUnavailable))
	for method, maybeDone := range map[string]bool{http.MethodGet: false, http.MethodPost: true} {
		err := c.Do(t.Context(), method, "/", nil, nil, client.Within(20*time.Millisecond))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeRegistryUnavailable || (e.Details["maybe_done"] == true) != maybeDone {
			t.Errorf("%s: got %v, want registry_unavailable with maybe_done %v", method, err, maybeDone)
		}
	}
}
