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
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
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

// A guest on the released source of its volume is counted with the source.
func TestStatusCountsEachGuestOnAnotherImageThanItsVolumeOnce(t *testing.T) {
	notes := []uplink.Note{{InstanceName: "web", RunsElsewhere: true}, {InstanceName: "db", RunsElsewhere: true}, {InstanceName: "mail", Misnamed: true}}
	sources := []api.ReleasedSource{{RunBy: "db"}, {RunBy: ""}}
	if n := runningElsewhere(notes, nil); n != 2 {
		t.Errorf("%d guests are counted, want web and db", n)
	}
	if n := runningElsewhere(notes, sources); n != 1 {
		t.Errorf("%d guests are counted besides the sources, want web", n)
	}
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
