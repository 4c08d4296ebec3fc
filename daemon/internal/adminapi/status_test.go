// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// hanging is a connected libvirt that answers no call.
type hanging struct{ *hvtest.Fake }

func (hanging) Answers(ctx context.Context) error {
	<-ctx.Done()
	return hv.ErrUnavailable
}

func TestStatusSeesALibvirtThatIsConnectedAndHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := hvtest.New()
		for status, h := range map[string]Hypervisor{"ok": fake, "fail": hanging{fake}} {
			began := time.Now()
			p := (&statusAPI{Deps: Deps{HV: h}}).libvirtPart(t.Context())
			if p.Status != status || (status == "fail") != strings.Contains(p.Message, "without an answer for 5s") {
				t.Errorf("%+v, want %s", p, status)
			}
			if took := time.Since(began); took > libvirtTimeout {
				t.Errorf("status took %s", took)
			}
		}
	})
}

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
