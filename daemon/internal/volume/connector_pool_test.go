// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// devicePath is the path of the volume db in the connector's pool.
const devicePath = "/dev/thin/db"

var inConnectorPool = api.VolumeCreate{Name: "db", Pool: "thin", SizeBytes: testSize}

// withConnectorPool gives the host a connector's pool "thin".
func (w *world) withConnectorPool(change func(p *hv.PoolInfo)) {
	p := hv.PoolInfo{Name: "thin", Type: hv.ConnectorPool, Path: "/dev/thin", Active: true, CapacityBytes: 1 << 39, FreeBytes: 1 << 39, Extends: true}
	change(&p)
	w.AddPool(p)
}

func asItIs(*hv.PoolInfo) {}

func TestAVolumeIsMadeInAPoolOfAConnectorAndDeleted(t *testing.T) {
	w := newWorld(t)
	w.withConnectorPool(asItIs)
	g, id := w.start(t), uuid.NewString()
	vol, err := g.Create(t.Context(), id, inConnectorPool)
	must(t, err)
	if vol.Location.Path != devicePath || vol.Location.Pool != "thin" || vol.Status != api.VolumeAvailable {
		t.Errorf("the volume is %+v", vol)
	}
	if v, err := w.LookupVolume(t.Context(), "thin", "db"); err != nil || v.OpID != id {
		t.Errorf("it is %+v (%v), want it to know op %s", v, err, id)
	}
	_, err = g.Delete(t.Context(), uuid.NewString(), vol.ID, false)
	must(t, err)
	if w.Exists(devicePath) {
		t.Error("it is deleted, and there")
	}
}

// TestAVolumeThatAConnectorMadeForAnOpIsTheOps: the daemon dies when the volume is made but the
// journal lacks its fingerprint.
func TestAVolumeThatAConnectorMadeForAnOpIsTheOps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, id := newWorld(t), uuid.NewString()
		w.withConnectorPool(asItIs)
		defer w.dieInCreate(t, id, inConnectorPool)()
		if !w.Exists(devicePath) {
			t.Fatal("it was not made, which proves nothing")
		}
		g := w.start(t)
		must(t, w.runner.Resume(t.Context()))
		vol, err := g.Create(t.Context(), id, inConnectorPool)
		must(t, err)
		if vol.Status != api.VolumeAvailable || !w.Exists(devicePath) {
			t.Errorf("the volume is %+v", vol)
		}
	})
}

// TestTheUndoOfACreationDeletesWhatAConnectorMadeForTheOp, but not another op's volume.
func TestTheUndoOfACreationDeletesWhatAConnectorMadeForTheOp(t *testing.T) {
	for maker, left := range map[string]bool{"this-op": false, "another-op": true} {
		w := newWorld(t)
		w.withConnectorPool(asItIs)
		in := &input{Volume: api.VolumeRegister{ID: matrixVolume, Name: "db", Location: api.Location{Pool: "thin", Name: "db", Path: devicePath, Format: api.FormatRaw, SizeBytes: testSize}}}
		w.registry.volumes[matrixVolume] = api.Volume{ID: matrixVolume, Name: "db", Status: api.VolumeCreating}
		_, err := w.CreateVolume(hv.WithOp(t.Context(), maker), "thin", "db", "raw", testSize, nil)
		must(t, err)
		must(t, w.start(t).env.removeMade(t.Context(), "this-op", in, claimNote{Ours: true}))
		if w.Exists(devicePath) != left {
			t.Errorf("%s has made it, and it is there: %t", maker, !left)
		}
	}
}

// withDevice adds a volume in the connector's pool to the world, with its holder.
func (w *world) withDevice(t *testing.T, who holder) api.Volume {
	t.Helper()
	l := api.Location{Pool: "thin", Name: "db", Path: devicePath, Format: api.FormatRaw, SizeBytes: testSize}
	must(t, w.CreateImage(l.Path, hvtest.Raw, testSize))
	must(t, w.WriteBlock(l.Path, 1, 7))
	vol := w.addVolume("db", l)
	if who == nobody {
		return vol
	}
	must(t, w.Define(hv.Domain{ID: guestID, Name: "web", Config: []hv.Disk{{
		Target: "vdb", Device: "disk", Chain: []hv.Image{{Type: hv.SourceBlock, Format: hvtest.Raw, Path: l.Path}}, Terminated: true,
	}}}))
	if who == running {
		must(t, w.Start(guestID))
	}
	return w.edit(vol.ID, func(v *api.Volume) {
		v.Status = api.VolumeInUse
		v.Attachments = []api.Attachment{{ID: "a", InstanceID: guestID, InstanceName: "web", DiskAttachment: api.DiskAttachment{Device: "vdb", Mode: api.ModeRW}, State: api.AttachmentAttached, Host: hostName}}
	})
}

// withConnectors is withDevice on a host that runs its connectors' programs.
func (w *world) withConnectors(t *testing.T, who holder) api.Volume {
	t.Helper()
	w.connectors = &hosttest.Connectors{Fake: w.Fake, Images: w.images, Moments: w.moments}
	return w.withDevice(t, who)
}

func TestADeviceOfAConnectorIsMadeLargerBeforeItsGuestIsTold(t *testing.T) {
	for _, who := range []holder{nobody, stopped, running} {
		t.Run(string(who), func(t *testing.T) {
			w := newWorld(t)
			w.withConnectorPool(asItIs)
			vol := w.withDevice(t, who)
			g := w.start(t)
			for _, opID := range []string{resizeOp, resizeOp, testOp} { // repeated, and the same size in another request
				_, err := g.Resize(t.Context(), opID, vol.ID, api.VolumeResize{SizeBytes: grownSize})
				must(t, err)
				must(t, w.hasSize(vol, who, grownSize))
			}
			calls := w.Calls()
			if n := count(calls, "ExtendVolume"); n != 1 {
				t.Errorf("the pool was asked %d times", n)
			}
			if at := slices.Index(calls, "GrowDisk"); who == running && at < slices.Index(calls, "ExtendVolume") {
				t.Errorf("its guest was told first, or not at all: %v", calls)
			}
		})
	}
}

func TestADeviceThatItsPoolDoesNotMakeThatLargeIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(w *world)
		code   api.Code
		says   string
	}{
		"it extends nothing":    {func(w *world) { w.withConnectorPool(func(p *hv.PoolInfo) { p.Extends = false }) }, api.CodeUnsupportedDisk, "made larger where it was made"},
		"it has no room":        {func(w *world) { w.withConnectorPool(func(p *hv.PoolInfo) { p.FreeBytes = 1 }) }, api.CodeNoSpace, "pool thin has"},
		"it makes other sizes":  {func(w *world) { w.withConnectorPool(asItIs); w.RoundUp("thin", 3*testSize) }, api.CodeInvalidArgument, "say that size"},
		"it cannot be used now": {func(w *world) { w.withConnectorPool(func(p *hv.PoolInfo) { p.Active, p.Problem = false, "it hangs" }) }, api.CodeStateForbidden, "it hangs"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			vol := w.withDevice(t, nobody)
			_, err := w.start(t).Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
			wantCode(t, err, c.code)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
			must(t, w.hasSize(vol, nobody, testSize))
		})
	}
}

// TestAResizeGoesOnIfTheConnectorFails: the op ends only when the device has the size.
func TestAResizeGoesOnIfTheConnectorFails(t *testing.T) {
	for what, fault := range map[string]hvtest.Fault{
		"before the change": {Call: "ExtendVolume", Err: hv.ErrBusy},
		"after the change":  {Call: "ExtendVolume", After: true, Err: errors.New("it died")},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.withConnectorPool(asItIs)
				vol := w.withDevice(t, running)
				w.Inject(fault)
				_, err := w.start(t).Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
				must(t, err)
				must(t, w.hasSize(vol, running, grownSize))
			})
		})
	}
}
