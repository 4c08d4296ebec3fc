// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"
)

// Packages are installed one after the other: a status right after the last must find the registry.
func TestStatusSeesARegistryThatWasStartedAMomentAgo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "registry.sock")
	s := newServer(t, socket, nil)
	if err := s.Uplink.Refresh(t.Context()); err == nil {
		t.Fatal("a registry answers that was not started")
	}
	if p := s.status().registryPart(t.Context()); p.Status != "fail" {
		t.Errorf("without a registry: %+v", p)
	}

	serveRegistryAt(t, socket, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"schema_version": 1, "host": {"id": "h", "name": "alpha", "epoch": 1}}`)
	})
	if p := s.status().registryPart(t.Context()); p.Status != "ok" {
		t.Errorf("with a registry: %+v", p)
	}
}
