// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scraped runs a whole daemon without libvirt and registry, and returns a function that reads a
// path of its metrics listener.
func scraped(t *testing.T) (get func(path string) (int, string)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only to find a free port
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{
			"--config", os.DevNull, "--log-level", "error", "--metrics-listen", address, "--socket", filepath.Join(dir, "s"), "--state-dir", dir,
			"--libvirt-socket", filepath.Join(dir, "libvirt"), "--registry", "unix://" + filepath.Join(dir, "registry"),
		}, io.Discard, new(bytes.Buffer))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(path string) (int, string) {
		t.Helper()
		for {
			resp, err := client.Get("http://" + address + path) //nolint:noctx // the test's own bound is enough
			if err != nil {                                     // the daemon is not listening yet
				select {
				case err := <-ended:
					ended <- err
					t.Fatalf("the daemon has ended: %v", err)
				case <-time.After(10 * time.Millisecond):
				}
				continue
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode, string(body)
		}
	}
}

// Libvirt and the registry may be away for long. The daemon is alive, but not ready.
func TestADaemonAloneIsAliveAndNotReady(t *testing.T) {
	get := scraped(t)
	if status, body := get("/healthz"); status != http.StatusOK || body != "ok journal\nok engine\n" {
		t.Errorf("/healthz = %d %q", status, body)
	}
	want := []string{"ok tasks", "ok journal", "ok engine", "ok migrations", "fail libvirt", "fail registry", "ok epoch", "ok recovery"}
	for deadline := time.After(20 * time.Second); ; {
		status, body := get("/readyz")
		var got []string
		for line := range strings.Lines(body) {
			found, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			got = append(got, found)
		}
		if status != http.StatusServiceUnavailable {
			t.Fatalf("/readyz = %d %q", status, body)
		}
		diff := cmp.Diff(want, got)
		if diff == "" {
			break
		}
		select { // it is starting
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("/readyz (-want +got)\n%s", diff)
		}
	}
	if _, body := get("/metrics"); !strings.Contains(body, "\nvolferry_journal_up 1\n") || !strings.Contains(body, "\nvolferry_registry_up 0\n") {
		t.Errorf("the scrape has not what it should:\n%s", body)
	}
}
