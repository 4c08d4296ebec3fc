// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

var halfThere = []api.VolumeStatus{api.VolumeCreating, api.VolumeDeleting, api.VolumeError}

func TestForceDeletesWhatIsHalfThere(t *testing.T) {
	for _, status := range halfThere {
		for _, image := range []bool{true, false} {
			w := newWorld(t)
			if image {
				must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
			}
			vol := w.addVolume("db", inPoolOfFiles())
			vol.Status = status
			w.registry.volumes[vol.ID] = vol
			g := w.start(t)
			wantCode(t, deleted(g.Delete(t.Context(), testOp+"1", vol.ID, false)), api.CodeVolumeNotAvailable)
			_, err := g.Delete(t.Context(), testOp+"2", vol.ID, true)
			must(t, err)
			if len(w.registry.volumes) > 0 || w.Exists("/files/db.raw") {
				t.Errorf("%s, with an image: %t: volumes %v, image there: %t", status, image, w.registry.volumes, w.Exists("/files/db.raw"))
			}
		}
	}
}

func TestForceDoesNotDeleteWhatIsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world, *api.Volume)
		code   api.Code
	}{
		"attached": {func(_ *world, v *api.Volume) {
			v.Status, v.Attachments = api.VolumeError, []api.Attachment{{InstanceID: "i", DiskAttachment: api.DiskAttachment{Device: "vdb"}}}
		}, api.CodeVolumeInUse},
		"moving":      {func(_ *world, v *api.Volume) { v.Status, v.MigrationID = api.VolumeError, "m" }, api.CodeMigrationActive},
		"reserved":    {func(_ *world, v *api.Volume) { v.Status = api.VolumeReserved }, api.CodeVolumeNotAvailable},
		"in a domain": {func(w *world, v *api.Volume) { v.Status = api.VolumeError; w.define(t, "mail", "/files/db.raw") }, api.CodeVolumeInUse},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
			vol := w.addVolume("db", inPoolOfFiles())
			c.change(w, &vol)
			w.registry.volumes[vol.ID] = vol
			wantCode(t, deleted(w.start(t).Delete(t.Context(), testOp, vol.ID, true)), c.code)
			if !w.Exists("/files/db.raw") {
				t.Error("the image is gone")
			}
		})
	}
}

func TestMatrixOfForcedDelete(t *testing.T) {
	for _, status := range halfThere {
		t.Run(string(status), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := newWorld(t)
				must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
				w.registry.volumes[matrixVolume] = api.Volume{
					ID: matrixVolume, Name: "db", Status: status, Host: hostName, Location: inPoolOfFiles(), SizeBytes: testSize,
				}
				return &subject{
					world: w, kind: kindDelete,
					in:   input{From: status, Volume: api.VolumeRegister{ID: matrixVolume, Name: "db", Host: testHost, Location: inPoolOfFiles()}},
					done: func(s *subject) error { return s.is("", false) },
					// It never becomes available, because it may be incomplete.
					undone: func(s *subject) error {
						if err := s.is(status, true); err != nil {
							return s.is(api.VolumeDeleting, true)
						}
						return nil
					},
				}
			}})
		})
	}
}

// The deletion that blocks it is continued first, on the operator's request.
func TestForceGoesOnWithAnOpThatWaitsForTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
		vol := w.addVolume("db", inPoolOfFiles())
		for n := range 50 {
			w.Inject(hvtest.Fault{Call: "LookupVolume", Nth: 3 + n, Err: errors.New("I/O error")})
		}
		wantCode(t, deleted(g.Delete(t.Context(), testOp+"1", vol.ID, false)), api.CodeNeedsOperator)
		refused := deleted(g.Delete(t.Context(), testOp+"2", vol.ID, true))
		wantCode(t, refused, api.CodeNeedsOperator)
		w.ClearFaults()
		person := &hosttest.Operator{Fake: w.Fake, Volferryctl: func(words []string) error {
			if len(words) != 4 || words[1] != "delete" || words[2] != vol.Name || words[3] != "--force" {
				return fmt.Errorf("nobody is told to type %q", words)
			}
			got, err := g.Delete(t.Context(), testOp+"3", vol.ID, true)
			if got.ID != vol.ID {
				t.Errorf("the answer is volume %q, want %q", got.ID, vol.ID)
			}
			return err
		}}
		told := hosttest.CommandsIn(refused.Error())
		if len(told) != 1 {
			t.Fatalf("the commands are %q", told)
		}
		must(t, person.Type(told[0]))
		if st, err := w.runner.Status(t.Context(), testOp+"1"); err != nil || st.State != op.StateDone || w.Exists("/files/db.raw") {
			t.Errorf("the first deletion is %s (%v), image there: %t", st.State, err, w.Exists("/files/db.raw"))
		}
	})
}

func TestAVolumeOfAnotherHostIsDeletedOnlyInASharedPool(t *testing.T) {
	for name, c := range map[string]struct {
		shared []string
		typ    string
		code   api.Code
	}{
		"not shared": {nil, "dir", api.CodeNotYourHost}, "configured": {[]string{"files"}, "dir", ""}, "by its type": {nil, "netfs", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.AddPool(hv.PoolInfo{Name: "files", Type: c.typ, Path: "/files", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
			must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
			vol := w.addVolume("db", inPoolOfFiles())
			vol.Host = "beta"
			w.registry.volumes[vol.ID] = vol
			g := w.start(t)
			g.shared = c.shared
			if err := deleted(g.Delete(t.Context(), testOp, vol.ID, false)); api.CodeOf(err) != c.code {
				t.Errorf("got %v, want %q", err, c.code)
			}
		})
	}
}

func TestAMultiattachVolumeIsRawAndWhereManyCanOpenIt(t *testing.T) {
	w := newWorld(t)
	w.registry.types["shared"] = api.VolumeType{Name: "shared", Multiattach: true}
	w.registry.types["zfs"] = api.VolumeType{Name: "zfs", Multiattach: true, Pools: []string{"tank"}}
	w.AddPool(hv.PoolInfo{Name: "tank", Type: "zfs", Path: "/dev/zvol/tank", Active: true, CapacityBytes: 1 << 41, FreeBytes: 1 << 41})
	g := w.start(t)
	in := api.VolumeCreate{Name: "db", SizeBytes: testSize, Type: "shared"}
	for op, c := range map[string]struct {
		change func(*api.VolumeCreate)
		code   api.Code
	}{
		"1": {func(in *api.VolumeCreate) { in.Format = api.FormatQcow2 }, api.CodeUnsupportedDisk},
		"2": {func(in *api.VolumeCreate) { in.Pool = "tank" }, api.CodeNoCapablePool},
		"3": {func(in *api.VolumeCreate) { in.Type = "zfs" }, api.CodeNoCapablePool},
	} {
		bad := in
		c.change(&bad)
		_, err := g.Create(t.Context(), testOp+op, bad)
		wantCode(t, err, c.code)
	}
	vol, err := g.Create(t.Context(), testOp, in)
	must(t, err)
	if vol.Location.Format != api.FormatRaw || vol.Location.Pool != "files" { // tank has more space
		t.Errorf("the volume is at %+v", vol.Location)
	}
}
