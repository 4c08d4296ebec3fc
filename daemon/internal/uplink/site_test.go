// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/httpjson"
)

// siteOf returns the operations' registry, which answers every read with this noun.
func (w *world) siteOf(noun string, v any) *Site {
	w.t.Helper()
	return w.siteAt(func(rw http.ResponseWriter, _ *http.Request) { _ = httpjson.Write(rw, http.StatusOK, noun, v) })
}

// siteAt returns the operations' registry, answered by this handler.
func (w *world) siteAt(answer http.HandlerFunc) *Site {
	w.t.Helper()
	socket := filepath.Join(w.t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "unix", socket)
	w.must(err)
	server := &http.Server{Handler: answer}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	c, err := client.NewRegistry(socket)
	w.must(err)
	w.t.Cleanup(func() {
		c.Close()
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			w.t.Error(err)
		}
	})
	return w.open().Site(c)
}

// A daemon that died before it stored the registry's grant finds it when its operation reads it: a
// fence must find this grant too.
func TestWhatAnOperationFindsToBeGrantedIsKept(t *testing.T) {
	const mail = "20000000-0000-4000-8000-000000000003"
	a := granted("mail", mail, "/nfs/mail.raw")
	anothers := a
	anothers.Host = "beta"
	m := api.Migration{
		ID: "m", VolumeID: a.VolumeID, InstanceID: mail, Host: "alpha", DstAttachmentID: a.ID,
		State: api.MigrationStarting, Dst: a.Location,
	}
	over := m
	over.State = api.MigrationCancelled
	for name, c := range map[string]struct {
		noun string
		v    any
		kept bool
	}{
		"attachment":           {"attachment", a, true},
		"of another host":      {"attachment", anothers, false},
		"attachments":          {"attachments", []api.Attachment{anothers, a}, true},
		"those of others":      {"attachments", []api.Attachment{anothers}, false},
		"migration":            {"migration", m, true},
		"migration that ended": {"migration", over, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.siteOf(c.noun, c.v)
			var err error
			switch c.noun {
			case "migration":
				_, err = s.Migration(t.Context(), "m")
			case "attachments":
				_, err = s.Attachments(t.Context(), "", mail)
			default:
				_, err = s.Attachment(t.Context(), a.ID)
			}
			w.must(err)
			has := func(g api.Attachment) bool {
				return g.ID == a.ID && g.InstanceID == mail && g.Location == a.Location
			}
			if kept := slices.ContainsFunc(w.open().granted(), has); kept != c.kept { // in the next process
				t.Errorf("kept: %t, want %t", kept, c.kept)
			}
		})
	}
}

// A registry that was just started accepts changes of a host only after its report: the operation
// does not notice.
func TestAChangeIsSentAgainAfterTheReportThatTheRegistryWantsFirst(t *testing.T) {
	for name, change := range map[string]func(*Site) (api.Volume, error){
		"transition": func(s *Site) (api.Volume, error) {
			return s.TransitionVolume(t.Context(), "op", "v", api.VolumeTransition{})
		},
		"begin resize": func(s *Site) (api.Volume, error) {
			return s.BeginResize(t.Context(), "op", "v", api.VolumeResizeBegin{})
		},
		"end resize": func(s *Site) (api.Volume, error) { return s.EndResize(t.Context(), "op", "v", api.VolumeResizeEnd{}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var sent atomic.Int32
			s := w.siteAt(func(rw http.ResponseWriter, _ *http.Request) {
				if sent.Add(1); len(w.registry.reports) == 0 {
					httpjson.WriteError(rw, api.Errorf(api.CodeRegistryUnavailable, "just started").With(api.DetailReportFirst, true))
					return
				}
				_ = httpjson.Write(rw, http.StatusOK, "volume", api.Volume{ID: "v"})
			})
			v, err := change(s)
			if err != nil || v.ID != "v" || sent.Load() != 2 || len(w.registry.reports) != 1 {
				t.Errorf("volume %q (%v), sent %d times with %d reports", v.ID, err, sent.Load(), len(w.registry.reports))
			}
		})
	}
}

// TestAPoolThatTheRegistryDoesNotKnowIsReportedAndAskedForOnceMore, only once, because the pool may
// not exist.
func TestAPoolThatTheRegistryDoesNotKnowIsReportedAndAskedForOnceMore(t *testing.T) {
	w := newWorld(t)
	var sent atomic.Int32
	s := w.siteAt(func(rw http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		httpjson.WriteError(rw, api.Errorf(api.CodeNotFound, "no pool").With(api.DetailReportFirst, true))
	})
	_, err := s.RegisterVolume(t.Context(), "op", api.VolumeRegister{})
	if api.CodeOf(err) != api.CodeNotFound || sent.Load() != 2 || len(w.registry.reports) != 1 {
		t.Errorf("%v, sent %d times with %d reports, want not_found, 2 and 1", err, sent.Load(), len(w.registry.reports))
	}
}

// Right after a host's boot libvirt may not list its pools.
func TestAPoolOfWhichNobodyKnowsYetIsWaitedFor(t *testing.T) {
	for name, fail := range map[string]func(*world){
		"libvirt does not tell":        func(w *world) { w.fake.Inject(hvtest.Fault{Call: "Pools", Err: hv.ErrUnavailable}) },
		"the registry hears no report": func(w *world) { w.registry.tooOften = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			fail(w)
			s := w.siteAt(func(rw http.ResponseWriter, _ *http.Request) {
				httpjson.WriteError(rw, api.Errorf(api.CodeNotFound, "no pool").With(api.DetailReportFirst, true))
			})
			if _, err := s.RegisterVolume(t.Context(), "op", api.VolumeRegister{}); api.CodeOf(err) != api.CodeRegistryUnavailable {
				t.Errorf("%v, want registry_unavailable, which operations wait for", err)
			}
		})
	}
}

func TestARegistryThatWantsAReportFirstGetsItAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.start()
		pass(time.Minute + time.Millisecond)
		before := len(w.registry.reports)
		_ = w.up.refused(1, true, api.Errorf(api.CodeRegistryUnavailable, "just started").With(api.DetailReportFirst, true))
		pass(300 * time.Millisecond)
		if n := len(w.registry.reports) - before; n != 1 {
			t.Errorf("%d reports within 300 ms, want 1", n)
		}
		w.kill()
	})
}
