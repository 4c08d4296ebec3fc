// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/httpjson"
)

// siteOf is the registry as operations use it, where the registry answers every
// read with this noun.
func (w *world) siteOf(noun string, v any) *Site {
	w.t.Helper()
	socket := filepath.Join(w.t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "unix", socket)
	w.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_ = httpjson.Write(rw, http.StatusOK, noun, v)
	})}
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

// A daemon that died between the registry's grant and keeping it finds the grant
// when its operation looks: a fence must know of it as of every other.
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
		"migration":            {"migration", m, true},
		"migration that ended": {"migration", over, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.siteOf(c.noun, c.v)
			var err error
			if c.noun == "migration" {
				_, err = s.Migration(t.Context(), "m")
			} else {
				_, err = s.Attachment(t.Context(), a.ID)
			}
			w.must(err)
			has := func(g api.Attachment) bool {
				return g.ID == a.ID && g.InstanceID == mail && g.Location == a.Location
			}
			if kept := slices.ContainsFunc(w.open().granted(), has); kept != c.kept { // by the next process
				t.Errorf("kept: %t, want %t", kept, c.kept)
			}
		})
	}
}
