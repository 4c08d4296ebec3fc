// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

const (
	guestID   = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0001"
	grownSize = 2 * testSize
	resizeOp  = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0bbb"
)

// holder is the user of the resized volume.
type holder string

const (
	nobody  holder = "attached nowhere"
	stopped holder = "a stopped instance"
	running holder = "a running guest"
	paused  holder = "a paused guest"
)

// withVolume adds a volume of testSize bytes to the world, with its image and its holder.
func (w *world) withVolume(t *testing.T, who holder) api.Volume {
	t.Helper()
	l := inPoolOfFiles()
	must(t, w.CreateImage(l.Path, hvtest.Raw, testSize))
	return w.volumeAt(t, l, who)
}

// volumeAt adds the volume of an image to the world, with its holder.
func (w *world) volumeAt(t *testing.T, l api.Location, who holder) api.Volume {
	t.Helper()
	must(t, w.WriteBlock(l.Path, 1, 7))
	vol := w.addVolume("db", l)
	if who == nobody {
		return vol
	}
	w.define(t, "web", l.Path)
	if who != stopped {
		must(t, w.Start(guestID))
	}
	if who == paused {
		must(t, w.SuspendByUser(guestID))
	}
	return w.edit(vol.ID, func(v *api.Volume) {
		v.Status = api.VolumeInUse
		v.Attachments = []api.Attachment{{ID: "a", InstanceID: guestID, InstanceName: "web", DiskAttachment: api.DiskAttachment{Device: "vdb", Mode: api.ModeRW}, State: api.AttachmentAttached, Host: hostName}}
	})
}

func (w *world) edit(id string, change func(*api.Volume)) api.Volume {
	w.registry.Lock()
	defer w.registry.Unlock()
	v := w.registry.volumes[id]
	change(&v)
	w.registry.volumes[id] = v
	return v
}

// hasSize returns errors unless registry, image and guest have this size, the volume is not
// reserved, and its data intact.
func (w *world) hasSize(vol api.Volume, who holder, want int64) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	now := w.registry.volumes[vol.ID]
	if now.SizeBytes != want || now.Location.SizeBytes != want || now.ResizeOpID != "" || now.Status != vol.Status {
		wrong("the registry has %d and %d bytes, %s, op %q; want %d, %s", now.SizeBytes, now.Location.SizeBytes, now.Status, now.ResizeOpID, want, vol.Status)
	}
	if info, err := w.Info(vol.Location.Path); err != nil || info.SizeBytes != want {
		wrong("the image has %d bytes (%v), want %d", info.SizeBytes, err, want)
	}
	if content, err := w.ReadImage(vol.Location.Path); err != nil || len(content) != 1 || content[1] != 7 {
		wrong("the content is %v (%v)", content, err)
	}
	if who == running || who == paused {
		if st, err := w.DiskStats(context.Background(), guestID, "vdb"); err != nil || st.CapacityBytes != want {
			wrong("the guest sees %+v (%v), want %d", st, err, want)
		}
	}
	return errors.Join(errs...)
}

func TestAVolumeIsMadeLargerWhoeverHasIt(t *testing.T) {
	for _, who := range []holder{nobody, stopped, running, paused} {
		t.Run(string(who), func(t *testing.T) {
			w := newWorld(t)
			vol := w.withVolume(t, who)
			g := w.start(t)
			for _, opID := range []string{resizeOp, resizeOp, testOp} { // repeated, and the same size in another request
				got, err := g.Resize(t.Context(), opID, vol.ID, api.VolumeResize{SizeBytes: grownSize})
				must(t, err)
				if got.SizeBytes != grownSize || got.Status != vol.Status {
					t.Errorf("the answer is %+v", got)
				}
				must(t, w.hasSize(vol, who, grownSize))
			}
			if calls := count(w.Calls(), "GrowDisk"); calls > 1 {
				t.Errorf("QEMU was told %d times", calls)
			}
		})
	}
}

func count(all []string, what string) (n int) {
	for _, s := range all {
		if s == what {
			n++
		}
	}
	return n
}

// A device outside pools is extended by its owner; the resize only reports the size.
func TestADeviceThatWasExtendedBecomesAsLargeForGuestAndRegistry(t *testing.T) {
	for _, who := range []holder{nobody, stopped, running} {
		t.Run(string(who), func(t *testing.T) {
			w := newWorld(t)
			vol := w.withVolume(t, who)
			w.images.Devices[vol.Location.Path] = true
			g := w.start(t)
			_, err := g.Resize(t.Context(), testOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
			wantCode(t, err, api.CodeUnsupportedDisk)
			must(t, w.hasSize(vol, who, testSize))
			must(t, w.Extend(vol.Location.Path, grownSize))
			_, err = g.Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
			must(t, err)
			must(t, w.hasSize(vol, who, grownSize))
		})
	}
}

// QEMU has opened the image since the check, so only QEMU may grow it.
func TestAGuestThatStartsInTheMiddleGrowsItsDiskItself(t *testing.T) {
	w := newWorld(t)
	vol := w.withVolume(t, stopped)
	g := w.start(t)
	w.images.BeforeGrow = func() { must(t, w.Start(guestID)) }
	_, err := g.Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
	must(t, err)
	must(t, w.hasSize(vol, running, grownSize))
	if !slices.Contains(w.Calls(), "GrowDisk") {
		t.Error("QEMU was not asked")
	}
}

// The guest ends before QEMU gets the command, or before it has answered.
func TestAGuestThatEndsInTheMiddleLeavesItsDiskToUs(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			vol := w.withVolume(t, running)
			g := w.start(t)
			w.Inject(hvtest.Fault{Call: "GrowDisk", After: after, Err: errors.New("the monitor is gone"), Do: func() { must(t, w.Stop(guestID)) }})
			_, err := g.Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
			must(t, err)
			must(t, w.hasSize(vol, stopped, grownSize))
			w.runner.Stop()
		})
	}
}

// A fenced host has lost its reservation, and another host may have the volume now.
func TestNothingGrowsThatIsNotKeptForItAnyMore(t *testing.T) {
	w := newWorld(t)
	vol := w.withVolume(t, running)
	w.faultPoint = func(name string) {
		if name == kindResize+"."+stepNameGrow+".before_started" {
			w.edit(vol.ID, func(v *api.Volume) { v.ResizeOpID, v.Status = "", api.VolumeInUse })
		}
	}
	_, err := w.start(t).Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
	wantCode(t, err, api.CodeConflict)
	must(t, w.hasSize(vol, running, testSize))
}

// A completed request never reports the old size.
func TestAFenceInAResizeIsAnErrorThatSaysTheSizes(t *testing.T) {
	for at, c := range map[string]struct {
		imageBytes int64
		text       string
	}{
		stepNameReserve + ".after_do":      {testSize, "its image has " + humanize.ExactBytes(testSize)},
		stepNameRecord + ".before_started": {grownSize, "has " + humanize.ExactBytes(testSize) + " in the registry and not " + humanize.ExactBytes(grownSize)},
	} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			vol := w.withVolume(t, running)
			var once sync.Once
			w.faultPoint = func(name string) {
				if name == kindResize+"."+at {
					once.Do(w.registry.fence)
				}
			}
			g := w.start(t)
			for range 2 {
				_, err := g.Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
				wantCode(t, err, api.CodeConflict)
				if !strings.Contains(err.Error(), c.text) {
					t.Errorf("it says %q, want %q", err, c.text)
				}
			}
			if info, err := w.Info(vol.Location.Path); err != nil || info.SizeBytes != c.imageBytes {
				t.Errorf("the image has %d bytes (%v), want %d", info.SizeBytes, err, c.imageBytes)
			}
			_, err := g.Resize(t.Context(), testOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
			must(t, err)
			must(t, w.hasSize(vol, running, grownSize))
		})
	}
}

func TestASizeThatIsThereIsRecordedWhenTheRegistryIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		vol := w.withVolume(t, running)
		g := w.start(t)
		w.Inject(hvtest.Fault{Call: "GrowDisk", After: true, Do: func() { w.registry.SetDown(true) }})
		_, err := g.Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
		wantCode(t, err, api.CodeRegistryUnavailable)
		w.registry.SetDown(false)
		w.runner.Wake("registry")
		_, err = w.runner.Wait(t.Context(), resizeOp)
		must(t, err)
		must(t, w.hasSize(vol, running, grownSize))
		w.runner.Stop()
	})
}

// QEMU completes the command before the new size is on stable storage.
func TestAPowerCutThatTakesTheNewSizeBackIsGotOver(t *testing.T) {
	w := newWorld(t)
	vol := w.withVolume(t, running)
	w.faultPoint = func(name string) {
		if name == kindResize+"."+stepNameRecord+".before_started" {
			must(t, w.Destroy(guestID))
			must(t, w.Extend(vol.Location.Path, testSize))
		}
	}
	_, err := w.start(t).Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
	must(t, err)
	must(t, w.hasSize(vol, stopped, grownSize))
}

// A migration has its instance for hours. Linux reports a lost write only once.
func TestAResizeThatCannotBeStoredIsNotRecordedByItsSecondFlush(t *testing.T) {
	w := newWorld(t)
	vol := w.withVolume(t, nobody)
	w.Sync(vol.Location.Path)
	w.images.FlushFails = func(string) error { return syscall.EIO }
	g := w.start(t)
	_, err := g.Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
	wantCode(t, err, api.CodeNeedsOperator)
	if now := w.registry.volumes[vol.ID]; now.SizeBytes != testSize {
		t.Errorf("the registry has %d bytes", now.SizeBytes)
	}
	// An operator has checked the image, and repeats the request.
	_, err = g.Resize(t.Context(), testOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
	must(t, err)
	must(t, w.hasSize(vol, nobody, grownSize))
}

func TestAResizeDoesNotWaitForWhatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		vol := w.withVolume(t, running)
		g := w.start(t)
		over := make(chan struct{})
		w.Inject(hvtest.Fault{Call: "Pools", Do: func() { <-over }})
		long, err := json.Marshal(input{Volume: api.VolumeRegister{ID: matrixVolume, Name: "other", Location: api.Location{Path: "/files/other.raw"}}})
		must(t, err)
		must(t, w.runner.Submit(t.Context(), op.Op{ID: testOp, Kind: kindAdopt, Keys: []string{request.InstanceKey(guestID)}, Input: long, CreatedAt: time.Now()}))
		synctest.Wait()
		began := time.Now()
		_, err = g.Resize(t.Context(), resizeOp, vol.ID, api.VolumeResize{SizeBytes: grownSize})
		wantCode(t, err, api.CodeInstanceBusy)
		if waited := time.Since(began); waited > 2*request.DefaultTimeout {
			t.Errorf("it was waited for %s", waited)
		}
		must(t, w.hasSize(vol, running, testSize))
		close(over)
		w.runner.Stop()
	})
}

// resizing is a world with a volume to be resized.
type resizing struct {
	*world
	vol api.Volume
	who holder
}

// Plans implements optest.World.
func (s *resizing) Plans() []op.Plan { return s.newManager(optest.NewRunner(s.journal)).Plans() }

// Op implements optest.World.
func (s *resizing) Op() op.Op {
	in := resizeInput{VolumeID: s.vol.ID, VolumeName: "db", Location: s.vol.Location, SizeBytes: grownSize, Host: testHost, Epoch: 1}
	if s.who != nobody {
		in.InstanceID, in.InstanceName, in.Device = guestID, "web", "vdb"
	}
	data, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	return op.Op{ID: resizeOp, Kind: kindResize, Keys: in.Keys(), Input: data, CreatedAt: time.Unix(1, 0)}
}

// Check implements optest.World.
func (s *resizing) Check(state op.State) error {
	if state == op.StateDone {
		return s.hasSize(s.vol, s.who, grownSize)
	}
	return s.hasSize(s.vol, s.who, testSize)
}

func TestMatrixOfResize(t *testing.T) {
	for _, who := range []holder{nobody, stopped, running} {
		t.Run(string(who), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := newWorld(t)
				return &resizing{w, w.withVolume(t, who), who}
			}})
		})
	}
}

func TestResizeIsRefused(t *testing.T) {
	disk := func(change func(*hv.Disk)) func(*testing.T, *world, api.Volume) {
		return func(t *testing.T, w *world, vol api.Volume) {
			must(t, w.Undefine(guestID))
			d := hv.Disk{Target: "vdb", Device: "disk", Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: vol.Location.Path}}, Terminated: true}
			change(&d)
			must(t, w.Define(hv.Domain{ID: guestID, Name: "web", Config: []hv.Disk{d}}))
		}
	}
	volume := func(change func(*api.Volume)) func(*testing.T, *world, api.Volume) {
		return func(_ *testing.T, w *world, vol api.Volume) { w.edit(vol.ID, change) }
	}
	attachment := func(change func(*api.Attachment)) func(*testing.T, *world, api.Volume) {
		return volume(func(v *api.Volume) { change(&v.Attachments[0]) })
	}
	path := inPoolOfFiles().Path
	for name, c := range map[string]struct {
		who    holder
		before func(*testing.T, *world, api.Volume)
		bytes  int64
		code   api.Code
		text   string
	}{
		"outside what is allowed": {who: nobody, before: volume(func(v *api.Volume) {
			v.Location = api.Location{Path: "/etc/passwd", Format: api.FormatRaw, SizeBytes: testSize}
		}), code: api.CodePermissionDenied, text: "allowed_paths"},
		"elsewhere by the journal": {who: nobody, before: func(_ *testing.T, w *world, _ api.Volume) {
			w.unrecorded = api.Errorf(api.CodeChainChanged, "it has moved")
		}, code: api.CodeChainChanged, text: "cannot resize volume db: it has moved"},
		"of a guest, elsewhere by the journal": {who: running, before: func(_ *testing.T, w *world, _ api.Volume) {
			w.unrecorded = api.Errorf(api.CodeChainChanged, "it has moved")
		}, code: api.CodeChainChanged, text: "cannot resize volume db: it has moved"},
		"half a sector":            {who: nobody, bytes: grownSize + 1, code: api.CodeInvalidArgument},
		"smaller":                  {who: running, bytes: testSize - 512, code: api.CodeInvalidArgument, text: humanize.ExactBytes(testSize) + ", and " + humanize.ExactBytes(testSize-512) + " is less: a volume is only made larger"},
		"smaller than its image":   {who: nobody, before: func(t *testing.T, w *world, _ api.Volume) { must(t, w.GrowImage(path, 2*grownSize)) }, code: api.CodeInvalidArgument},
		"a shrunk image":           {who: nobody, before: func(t *testing.T, w *world, _ api.Volume) { must(t, w.GrowImage(path, testSize/2)) }, code: api.CodeSizeMismatch},
		"moving":                   {who: running, before: volume(func(v *api.Volume) { v.MigrationID = "m" }), code: api.CodeMigrationActive},
		"reserved":                 {who: running, before: volume(func(v *api.Volume) { v.Status = api.VolumeReserved }), code: api.CodeVolumeNotAvailable},
		"being deleted":            {who: nobody, before: volume(func(v *api.Volume) { v.Status = api.VolumeDeleting }), code: api.CodeVolumeNotAvailable},
		"attached twice":           {who: running, before: volume(func(v *api.Volume) { v.Attachments = append(v.Attachments, v.Attachments[0]) }), code: api.CodeMultiattached},
		"on the shelf":             {who: stopped, before: attachment(func(a *api.Attachment) { a.Host = "" }), code: api.CodeStateForbidden},
		"another host's guest":     {who: stopped, before: attachment(func(a *api.Attachment) { a.Host = "beta" }), code: api.CodeNotYourHost},
		"another host's":           {who: nobody, before: volume(func(v *api.Volume) { v.Host = "beta" }), code: api.CodeNotYourHost},
		"read-only":                {who: running, before: attachment(func(a *api.Attachment) { a.Mode = api.ModeRO }), code: api.CodeStateForbidden},
		"not attached yet":         {who: running, before: attachment(func(a *api.Attachment) { a.State = api.AttachmentAttaching }), code: api.CodeStateForbidden},
		"a domain that is gone":    {who: stopped, before: func(t *testing.T, w *world, _ api.Volume) { must(t, w.Undefine(guestID)) }, code: api.CodeNotFound},
		"asleep":                   {who: running, before: func(t *testing.T, w *world, _ api.Volume) { must(t, w.StandStill(guestID, hv.PauseAsleep)) }, code: api.CodeStateForbidden, text: "is asleep (S3)"},
		"a slice":                  {who: stopped, before: disk(func(d *hv.Disk) { d.Slices = true }), code: api.CodeUnsupportedDisk},
		"encrypted":                {who: stopped, before: disk(func(d *hv.Disk) { d.Encrypted = true }), code: api.CodeUnsupportedDisk},
		"a LUKS container":         {who: stopped, before: volume(func(v *api.Volume) { v.Location.LUKSSecret = guestID }), code: api.CodeUnsupportedDisk},
		"a read-only disk":         {who: stopped, before: disk(func(d *hv.Disk) { d.ReadOnly = true }), code: api.CodeStateForbidden},
		"a transient disk":         {who: stopped, before: disk(func(d *hv.Disk) { d.Transient = true }), code: api.CodeUnsupportedDisk},
		"another device":           {who: stopped, before: disk(func(d *hv.Disk) { d.Target = "vdc" }), code: api.CodeChainChanged},
		"saved":                    {who: running, before: func(t *testing.T, w *world, _ api.Volume) { must(t, w.Save(guestID)) }, code: api.CodeStateForbidden},
		"moved away":               {who: running, before: func(t *testing.T, w *world, _ api.Volume) { must(t, w.MoveAway(guestID)) }, code: api.CodeStateForbidden},
		"mounted":                  {who: nobody, before: func(_ *testing.T, w *world, _ api.Volume) { w.images.Users[path] = "it is mounted" }, code: api.CodeVolumeInUse},
		"written by somebody":      {who: stopped, before: func(_ *testing.T, w *world, _ api.Volume) { w.images.Writing[path] = true }, code: api.CodeVolumeInUse},
		"another domain's as well": {who: nobody, before: func(t *testing.T, w *world, _ api.Volume) { w.define(t, "foreign", path) }, code: api.CodeVolumeInUse},
		"no room":                  {who: running, before: func(_ *testing.T, w *world, _ api.Volume) { w.images.Free.Store(grownSize - testSize - 1) }, code: api.CodeNoSpace, text: "may grow by " + humanize.ExactBytes(grownSize-testSize)},
		"more than its filesystem holds": {who: running, before: func(_ *testing.T, w *world, _ api.Volume) {
			w.images.Limits = map[string]image.Needs{"/files": {FileBytes: grownSize - 1}}
		}, code: api.CodeInvalidArgument, text: "cannot resize volume "},
		"a place that the unit does not name":                 {who: nobody, before: func(_ *testing.T, w *world, _ api.Volume) { w.images.ReadOnly = "/files" }, code: api.CodePermissionDenied, text: "ReadWritePaths=/files"},
		"a place that the unit does not name, of a guest off": {who: stopped, before: func(_ *testing.T, w *world, _ api.Volume) { w.images.ReadOnly = "/files" }, code: api.CodePermissionDenied, text: "ReadWritePaths=/files"},
		"an image on a device": {who: nobody, before: func(t *testing.T, w *world, vol api.Volume) {
			must(t, w.Extend(path, testSize+hvtest.TableBytes))
			must(t, w.CreateOnDevice(path, testSize))
			w.images.Devices[path] = true
			w.edit(vol.ID, func(v *api.Volume) { v.Location.Format = api.FormatQcow2 })
		}, code: api.CodeUnsupportedDisk, text: "a qcow2 image on the block device"},
		"no image":      {who: nobody, before: func(t *testing.T, w *world, _ api.Volume) { must(t, w.Remove(path)) }, code: api.CodeNotFound},
		"registry away": {who: nobody, before: func(_ *testing.T, w *world, _ api.Volume) { w.registry.SetDown(true) }, code: api.CodeRegistryUnavailable},
		"libvirt away":  {who: running, before: func(_ *testing.T, w *world, _ api.Volume) { w.Disconnect() }, code: api.CodeHypervisorUnavailable},
		"on an overlay": {who: running, before: func(t *testing.T, w *world, vol api.Volume) {
			must(t, w.CreateOverlay("/files/overlay", hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}, testSize))
			must(t, w.PutOverlay(t.Context(), guestID, "vdb", hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/files/overlay"}))
		}, code: api.CodeChainChanged},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			vol := w.withVolume(t, c.who)
			if c.before != nil {
				c.before(t, w, vol)
			}
			if c.bytes == 0 {
				c.bytes = grownSize
			}
			size := func() int64 { info, _ := w.Info(path); return info.SizeBytes }
			before, g := size(), w.start(t)
			_, err := g.Resize(t.Context(), testOp, vol.ID, api.VolumeResize{SizeBytes: c.bytes})
			wantCode(t, err, c.code)
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("it says %q, want %q", err, c.text)
			}
			if now := w.registry.volumes[vol.ID]; now.ResizeOpID != "" || now.SizeBytes != testSize || size() != before {
				t.Errorf("left: %+v, and the image has %d bytes", now, size())
			}
		})
	}
}
