// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only to find a free port
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// await reads a path of a metrics listener until its answer has all the words.
func await(t *testing.T, address, path string, words ...string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.After(20 * time.Second); ; {
		said := "no answer"
		if resp, err := client.Get("http://" + address + path); err == nil { //nolint:noctx // the deadline is enough
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			said = resp.Status + "\n" + string(body)
		}
		missing := ""
		for _, w := range words {
			if !strings.Contains(said, w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%s has no %q:\n%s", path, missing, said)
		}
	}
}

func TestARegistryThatTakesChangesIsAliveAndReady(t *testing.T) {
	address := freeAddress(t)
	p := start(t, t.TempDir(), "--metrics-listen", address)
	defer p.end(t)
	await(t, address, "/readyz", "200 OK\nok tasks\nok database\nok changes\n")
	await(t, address, "/healthz", "200 OK\nok database\n")
	await(t, address, "/metrics", "\nvolferry_registry_database_up 1\n", "\nvolferry_registry_read_only 0\n")
}

func TestARegistryFromABackupIsAliveAndNotReady(t *testing.T) {
	p, restored := start(t, t.TempDir()), t.TempDir()
	report := api.HostReport{ID: hostID, Name: "a"}
	must(p.Report(t.Context(), report))(t)
	if err := os.Mkdir(filepath.Join(restored, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sqlitedb.Backup(t.Context(), filepath.Join(p.dir, "state", "registry.db"), filepath.Join(restored, "state", "registry.db")); err != nil {
		t.Fatal(err)
	}
	must(p.Report(t.Context(), api.HostReport{ID: instanceID, Name: "b"}))(t)
	report.Mark = must(p.Report(t.Context(), report))(t).Mark
	p.end(t)

	address := freeAddress(t)
	p = start(t, restored, "--metrics-listen", address)
	defer p.end(t)
	if _, err := p.Report(t.Context(), report); api.CodeOf(err) != api.CodeRegistryUnavailable {
		t.Fatalf("a report with a newer mark: %v", err)
	}
	await(t, address, "/readyz", "503 Service Unavailable\nok tasks\nok database\nfail changes: read-only: ")
	await(t, address, "/healthz", "200 OK\nok database\n")
}
