// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

func TestCreateMakesTheImageAndPublishesTheVolume(t *testing.T) {
	for name, c := range map[string]struct {
		in   api.VolumeCreate
		want api.Location
	}{
		"most room, raw": {
			api.VolumeCreate{Name: "db", SizeBytes: testSize},
			api.Location{Pool: "files", Name: "db.raw", Path: "/files/db.raw", Format: api.FormatRaw, SizeBytes: testSize},
		},
		"qcow2": {
			api.VolumeCreate{Name: "db", SizeBytes: testSize, Format: api.FormatQcow2},
			api.Location{Pool: "files", Name: "db.qcow2", Path: "/files/db.qcow2", Format: api.FormatQcow2, SizeBytes: testSize},
		},
		"a block device, by the type": {
			api.VolumeCreate{Name: "db", SizeBytes: testSize, Type: "bulk"},
			api.Location{Pool: "lvm", Name: "db", Path: "/dev/lvm/db", Format: api.FormatRaw, SizeBytes: testSize, Identity: "born-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			vol, err := w.start(t).Create(t.Context(), testOp, c.in)
			must(t, err)
			if diff := cmp.Diff(c.want, vol.Location); diff != "" || vol.Status != api.VolumeAvailable {
				t.Errorf("the volume is %s at (-want +got):\n%s", vol.Status, diff)
			}
			info, err := w.Info(c.want.Path)
			must(t, err)
			if info.SizeBytes != testSize || info.Format != string(c.want.Format) {
				t.Errorf("the image is %d bytes of %s", info.SizeBytes, info.Format)
			}
		})
	}
}

func TestTheRoomOfAPoolIsThatOfItsDirectoryAndNotOfLibvirtsLastLook(t *testing.T) {
	pools := []hv.PoolInfo{
		{Name: "filled", Type: "dir", Path: "/filled", Active: true, FreeBytes: 5 << 30},
		{Name: "emptied", Type: "dir", Path: "/emptied", Active: true, FreeBytes: 0},
		{Name: "lvm", Type: "logical", Path: "/dev/lvm", Active: true, FreeBytes: 1},
		{Name: "away", Type: "netfs", Path: "/away", Active: true, FreeBytes: 9 << 30},
	}
	ofDir := func(dir string) (int64, error) {
		switch dir {
		case "/filled":
			return 1, nil
		case "/emptied":
			return 5 << 30, nil
		}
		return 0, errors.New("no such device")
	}
	choose := func(pool string) (string, error) {
		p, err := choosePool(pools, api.VolumeType{Name: "default"}, api.VolumeCreate{Name: "db", Pool: pool, Format: api.FormatRaw, SizeBytes: 1 << 30}, ofDir)
		return p.Name, err
	}
	for _, asked := range []string{"", "emptied"} {
		if got, err := choose(asked); err != nil || got != "emptied" {
			t.Errorf("asked for %q: chose %q, %v", asked, got, err)
		}
	}
	for _, full := range []string{"filled", "lvm"} {
		if _, err := choose(full); api.CodeOf(err) != api.CodeNoSpace {
			t.Errorf("asked for %s: %v", full, err)
		}
	}
	if _, err := choose("away"); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("asked for a pool that cannot be looked at: %v", err)
	}
}

func TestPoolChoiceDoesNotDependOnOrder(t *testing.T) {
	pools := []hv.PoolInfo{
		{Name: "c", Type: "dir", Path: "/c", Active: true, FreeBytes: 5 << 30},
		{Name: "a", Type: "dir", Path: "/a", Active: true, FreeBytes: 5 << 30},
		{Name: "small", Type: "dir", Path: "/s", Active: true, FreeBytes: 1 << 30},
		{Name: "off", Type: "dir", Path: "/o", FreeBytes: 9 << 30},
		{Name: "san", Type: "iscsi", Path: "/i", Active: true, FreeBytes: 9 << 30},
	}
	for range len(pools) {
		pools = append(pools[1:], pools[0])
		got, err := choosePool(pools, api.VolumeType{Name: "default"}, api.VolumeCreate{Format: api.FormatRaw, SizeBytes: 1 << 30}, func(string) (int64, error) { return 1 << 30, nil })
		if err != nil || got.Name != "a" {
			t.Errorf("chose %q (%v), want a", got.Name, err)
		}
	}
}

func TestAVolumeInAPoolThatRoundsIsTheBeginningOfWhatThePoolMakes(t *testing.T) {
	w := newWorld(t)
	w.RoundUp("lvm", testSize-hvtest.BlockSize)
	vol, err := w.start(t).Create(t.Context(), testOp, api.VolumeCreate{Name: "db", Pool: "lvm", SizeBytes: testSize})
	must(t, err)
	if l := vol.Location; l.SizeBytes != testSize || l.ImageBytes != 2*(testSize-hvtest.BlockSize) || vol.Status != api.VolumeAvailable {
		t.Errorf("the volume is %s at %+v", vol.Status, l)
	}
}

// TestANewVolumeOfAnUnevenSizeDoesNotBeginWithAHole, because QEMU would not open it with
// cache=none.
func TestANewVolumeOfAnUnevenSizeDoesNotBeginWithAHole(t *testing.T) {
	for name, c := range map[string]struct {
		in     api.VolumeCreate
		filled bool
	}{
		"uneven file":   {api.VolumeCreate{Name: "db", Pool: "files", SizeBytes: testSize + 512}, true},
		"even file":     {api.VolumeCreate{Name: "db", Pool: "files", SizeBytes: testSize}, false},
		"uneven qcow2":  {api.VolumeCreate{Name: "db", Pool: "files", SizeBytes: testSize + 512, Format: api.FormatQcow2}, false},
		"uneven device": {api.VolumeCreate{Name: "db", Pool: "lvm", SizeBytes: testSize + 512}, false},
	} {
		w := newWorld(t)
		vol, err := w.start(t).Create(t.Context(), testOp, c.in)
		must(t, err)
		if filled := slices.Equal(w.images.Filled, []string{vol.Location.Path}); filled != c.filled {
			t.Errorf("%s: a first block was given to %q, want it for %s: %t", name, w.images.Filled, vol.Location.Path, c.filled)
		}
	}
}

func TestCreateNeverDeletesWhatItDidNotMake(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	// Another program creates the same file between the check and the creation.
	w.Inject(hvtest.Fault{Call: "CreateVolume", Do: func() {
		must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
	}})
	_, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
	wantCode(t, err, api.CodeConflict)
	if !w.Exists("/files/db.raw") {
		t.Error("the foreign file is gone")
	}
	if len(w.registry.volumes) > 0 {
		t.Errorf("the registry has %v, want nothing", w.registry.volumes)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	w.Inject(hvtest.Fault{Call: "CreateVolume", Err: errors.New("lvcreate said no")})
	_, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
	wantCode(t, err, api.CodeInternal)
	if w.Exists("/files/db.raw") || len(w.registry.volumes) > 0 {
		t.Errorf("left: image %t, volumes %v", w.Exists("/files/db.raw"), w.registry.volumes)
	}
}

func TestCreateIsDoneEvenIfTheVolumeIsAttachedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.registry.eager = true
	vol, err := w.start(t).Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
	must(t, err)
	if vol.Status != api.VolumeInUse || !w.Exists("/files/db.raw") {
		t.Errorf("the volume is %s and its image there: %t", vol.Status, w.Exists("/files/db.raw"))
	}
}

func TestAdoptTakesTheImageAsItIs(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	outside, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.WriteFile(dir+"/old.img", nil, 0o600)) // a dangling link is ignored
	must(t, os.Symlink(dir, outside+"/link"))
	for name, c := range map[string]struct {
		in   api.VolumeAdopt
		want api.Location
	}{
		"by path": {
			api.VolumeAdopt{Name: "db", Path: outside + "/old.img", Format: api.FormatRaw},
			api.Location{Path: outside + "/old.img", Format: api.FormatRaw, SizeBytes: testSize},
		},
		"by the path of a pool": { // a drain of the pool moves every volume in it, whatever path was used
			api.VolumeAdopt{Name: "db", Path: dir + "/old.img", Format: api.FormatRaw},
			api.Location{Pool: "real", Name: "old.img", Path: dir + "/old.img", Format: api.FormatRaw, SizeBytes: testSize},
		},
		"by a link to a pool": {
			api.VolumeAdopt{Name: "db", Path: outside + "/link/old.img", Format: api.FormatRaw},
			api.Location{Pool: "real", Name: "old.img", Path: outside + "/link/old.img", Format: api.FormatRaw, SizeBytes: testSize},
		},
		"in a pool": {
			api.VolumeAdopt{Name: "db", Pool: "real", VolumeName: "old.img", Format: api.FormatRaw},
			api.Location{Pool: "real", Name: "old.img", Path: dir + "/old.img", Format: api.FormatRaw, SizeBytes: testSize},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.addRealPool(dir)
			must(t, w.CreateImage(c.want.Path, hvtest.Raw, testSize))
			must(t, w.WriteBlock(c.want.Path, 1, 7))
			vol, err := w.start(t).Adopt(t.Context(), testOp, c.in)
			must(t, err)
			if diff := cmp.Diff(c.want, vol.Location); diff != "" || vol.Status != api.VolumeAvailable {
				t.Errorf("the volume is %s at (-want +got):\n%s", vol.Status, diff)
			}
			if content, err := w.ReadImage(c.want.Path); err != nil || content[1] != 7 {
				t.Errorf("the content is %v (%v), want it untouched", content, err)
			}
		})
	}
}

// addOnDevice makes a qcow2 image on a block device that is large enough.
func (w *world) addOnDevice(t *testing.T, path string) {
	t.Helper()
	must(t, w.CreateImage(path, hvtest.Raw, testSize+hvtest.TableBytes))
	must(t, w.CreateOnDevice(path, testSize))
	w.images.Devices[path] = true
}

// TestAdoptTakesAnImageOnADevice that is large enough, with the size that its guest sees.
func TestAdoptTakesAnImageOnADevice(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := newWorld(t)
	w.addOnDevice(t, dir+"/dev")
	vol, err := w.start(t).Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "db", Path: dir + "/dev", Format: api.FormatQcow2})
	must(t, err)
	if want := (api.Location{Path: dir + "/dev", Format: api.FormatQcow2, SizeBytes: testSize, Identity: w.identityOf(t, dir+"/dev")}); vol.Location != want {
		t.Errorf("the volume is at %+v, want %+v", vol.Location, want)
	}
}

func TestAdoptFindsAVolumeBehindALink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.WriteFile(dir+"/a.raw", nil, 0o600))
	must(t, os.Symlink(dir+"/a.raw", dir+"/b.raw"))
	w := newWorld(t)
	must(t, w.CreateImage(dir+"/b.raw", hvtest.Raw, testSize))
	w.addVolume("first", api.Location{Path: dir + "/a.raw"})
	_, err = w.start(t).Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "second", Path: dir + "/b.raw", Format: api.FormatRaw})
	wantCode(t, err, api.CodeConflict)
}

func TestDeleteRemovesBytesAndVolume(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for name, c := range map[string]struct {
		l     api.Location
		block bool
		image bool // it still exists
	}{
		"in a pool":                         {l: inPoolOfFiles()},
		"file at a path":                    {l: api.Location{Path: dir + "/db.raw"}},
		"block device at a path is left":    {l: api.Location{Path: dir + "/sdb"}, block: true, image: true},
		"an export is left":                 {l: api.Location{Path: "nbd+unix:///db?socket=" + dir + "/s"}, image: true},
		"an RBD image is left":              {l: api.Location{Path: "rbd://" + cephCluster + "/rbd/db"}, image: true},
		"block device in a pool is not":     {l: api.Location{Pool: "lvm", Name: "db", Path: "/dev/lvm/db"}, block: true},
		"with a header that makes no sense": {l: api.Location{Path: dir + "/bad.qcow2", Format: api.FormatQcow2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must(t, w.CreateImage(c.l.Path, hvtest.Raw, testSize))
			w.images.Devices[c.l.Path] = c.block
			mustDelete(t, w.start(t), testOp, w.addVolume("db", c.l))
			if got := w.Exists(c.l.Path); got != c.image {
				t.Errorf("an image is there: %t, want %t", got, c.image)
			}
			if len(w.registry.volumes) > 0 {
				t.Errorf("the registry has %v, want nothing", w.registry.volumes)
			}
		})
	}
}

func TestDeleteIsUndoneIfTheImageCannotBeRemoved(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for name, format := range map[string]api.Format{"good image": api.FormatRaw, "damaged image": api.FormatQcow2} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must(t, w.CreateImage(dir+"/db", hvtest.Raw, testSize))
			w.images.Stuck = errors.New("read-only file system")
			vol := w.addVolume("db", api.Location{Path: dir + "/db", Format: format})
			wantCode(t, deleted(w.start(t).Delete(t.Context(), testOp, vol.ID, false)), api.CodeInternal)
			if got := w.registry.volumes[vol.ID].Status; got != api.VolumeAvailable {
				t.Errorf("the volume is %q, want available again", got)
			}
		})
	}
}

func TestDeleteForgetsAVolumeWhoseImageIsGone(t *testing.T) {
	w := newWorld(t)
	mustDelete(t, w.start(t), testOp, w.addVolume("db", inPoolOfFiles()))
	if len(w.registry.volumes) > 0 {
		t.Errorf("the registry has %v, want nothing", w.registry.volumes)
	}
}

func TestDeleteFollowsALinkToTheBytes(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.WriteFile(dir+"/real.raw", nil, 0o600))
	must(t, os.Symlink(dir+"/real.raw", dir+"/link.raw"))
	w := newWorld(t)
	must(t, w.CreateImage(dir+"/real.raw", hvtest.Raw, testSize))
	mustDelete(t, w.start(t), testOp, w.addVolume("db", api.Location{Path: dir + "/link.raw"}))
	if w.Exists(dir + "/real.raw") {
		t.Error("the bytes outlived their volume")
	}
}

// A volume that was adopted through a link to its pool, or through /dev/mapper, keeps that path.
func TestDeleteFindsInItsPoolAVolumeThatHasAnotherNameOfItsImage(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Mkdir(dir+"/pool", 0o700))
	must(t, os.WriteFile(dir+"/pool/db.raw", nil, 0o600))
	must(t, os.WriteFile(dir+"/other.raw", nil, 0o600))
	must(t, os.Symlink(dir+"/pool", dir+"/link"))
	for path, code := range map[string]api.Code{dir + "/link/db.raw": "", dir + "/other.raw": api.CodeConflict} {
		w := newWorld(t)
		w.addRealPool(dir + "/pool")
		must(t, w.CreateImage(dir+"/pool/db.raw", hvtest.Raw, testSize))
		vol := w.addVolume("db", api.Location{Pool: "real", Name: "db.raw", Path: path})
		if err := deleted(w.start(t).Delete(t.Context(), testOp, vol.ID, false)); api.CodeOf(err) != code {
			t.Errorf("%s: got %v, want %q", path, err, code)
		}
		if is, want := w.Exists(dir+"/pool/db.raw"), code != ""; is != want {
			t.Errorf("%s: the image is there: %t, want %t", path, is, want)
		}
	}
}

// Only the pool's path can be attached, because the target of the link can change.
func TestAnImageThatIsAdoptedByALinkInItsPoolHasThePathOfThePool(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.WriteFile(dir+"/db.raw", nil, 0o600))
	must(t, os.Symlink(".", dir+"/link"))
	w := newWorld(t)
	w.addRealPool(dir)
	for _, path := range []string{dir + "/db.raw", dir + "/link/db.raw"} {
		must(t, w.CreateImage(path, hvtest.Raw, testSize))
	}
	v, err := w.start(t).Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "db", Path: dir + "/link/db.raw", Format: api.FormatRaw})
	must(t, err)
	if l := v.Location; l.Pool != "real" || l.Name != "db.raw" || l.Path != dir+"/db.raw" {
		t.Errorf("the volume is at %+v", l)
	}
	must(t, location.CheckPool(t.Context(), w.Fake, v.Location, "cannot attach volume db"))
}

func TestDeleteIsUndoneWhenAGuestTakesTheImageMeanwhile(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
	vol := w.addVolume("db", inPoolOfFiles())
	// The first read is the request's check, the second one the step's.
	w.Inject(hvtest.Fault{Call: "Domains", Nth: 2, Do: func() { w.define(t, "web", "/files/db.raw") }})
	wantCode(t, deleted(g.Delete(t.Context(), testOp, vol.ID, false)), api.CodeVolumeInUse)
	if got := w.registry.volumes[vol.ID].Status; !w.Exists("/files/db.raw") || got != api.VolumeAvailable {
		t.Errorf("the volume is %q and its image there: %t; want both as before", got, w.Exists("/files/db.raw"))
	}
}

func TestDeleteRefusesAnImageThatThePoolHasElsewhere(t *testing.T) {
	w := newWorld(t)
	must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
	l := inPoolOfFiles()
	l.Path = "/former/db.raw"
	wantCode(t, deleted(w.start(t).Delete(t.Context(), testOp, w.addVolume("db", l).ID, false)), api.CodeConflict)
	if !w.Exists("/files/db.raw") {
		t.Error("another volume's image is gone")
	}
}

func TestRepeatedRequestGetsTheSameAnswer(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	dir := t.TempDir()
	w.addRealPool(dir)
	must(t, w.CreateImage(dir+"/old.img", hvtest.Raw, testSize))
	const createOp, adoptOp, deleteOp, failOp = testOp + "1", testOp + "2", testOp + "3", testOp + "4"
	create := api.VolumeCreate{Name: "db", SizeBytes: testSize}
	adopt := api.VolumeAdopt{Name: "old", Pool: "real", VolumeName: "old.img", Format: api.FormatRaw}

	made, err := g.Create(t.Context(), createOp, create)
	must(t, err)
	taken, err := g.Adopt(t.Context(), adoptOp, adopt)
	must(t, err)
	_, failure := g.Create(t.Context(), failOp, create) // the name is taken
	wantCode(t, failure, api.CodeConflict)
	mustDelete(t, g, deleteOp, made)
	calls := len(w.Calls())

	again, err := g.Create(t.Context(), createOp, create)
	must(t, err)
	if diff := cmp.Diff(made, again); diff != "" {
		t.Errorf("create again (-first +again):\n%s", diff)
	}
	adopted, err := g.Adopt(t.Context(), adoptOp, adopt)
	must(t, err)
	if diff := cmp.Diff(taken, adopted); diff != "" {
		t.Errorf("adopt again (-first +again):\n%s", diff)
	}
	_, refused := g.Create(t.Context(), failOp, create)
	if diff := cmp.Diff(failure, refused, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("failed create again (-first +again):\n%s", diff)
	}
	mustDelete(t, g, deleteOp, made)
	if now := w.Calls(); len(now) != calls {
		t.Errorf("repeated requests called the hypervisor: %v", now[calls:])
	}
}

func TestOpIDOfAnotherRequestIsRefused(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	vol, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
	must(t, err)
	_, err = g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: 2 * testSize})
	wantCode(t, err, api.CodeIdempotencyMismatch)
	_, err = g.Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "db", Pool: "files", VolumeName: "db.raw", Format: api.FormatRaw})
	wantCode(t, err, api.CodeIdempotencyMismatch)
	wantCode(t, deleted(g.Delete(t.Context(), testOp, vol.ID, false)), api.CodeIdempotencyMismatch)
}

func TestSimultaneousSameRequestsMakeOneVolume(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	in := api.VolumeCreate{Name: "db", SizeBytes: testSize}
	var (
		second api.Volume
		err2   error
		ended  = make(chan struct{})
	)
	// The second request arrives while the first chooses its pool, and could overtake it without
	// the lock.
	w.Inject(hvtest.Fault{Call: "Pools", Do: func() {
		go func() {
			defer close(ended)
			second, err2 = g.Create(t.Context(), testOp, in)
		}()
		select {
		case <-ended:
		case <-time.After(50 * time.Millisecond):
		}
	}})
	first, err := g.Create(t.Context(), testOp, in)
	<-ended
	must(t, errors.Join(err, err2))
	if first.ID != second.ID || len(w.registry.volumes) != 1 {
		t.Errorf("the requests got the volumes %s and %s of %d", first.ID, second.ID, len(w.registry.volumes))
	}
}

// TestRequestIsAnsweredWhileTheRegistryIsAwayAndGoesOnAfterwards: the registry stops answering
// between the making of the image and the volume's publication.
func TestRequestIsAnsweredWhileTheRegistryIsAwayAndGoesOnAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		w.Inject(hvtest.Fault{Call: "CreateVolume", After: true, Do: func() { w.registry.SetDown(true) }})
		in := api.VolumeCreate{Name: "db", SizeBytes: testSize}
		_, err := g.Create(t.Context(), testOp, in)
		wantCode(t, err, api.CodeRegistryUnavailable)
		w.registry.SetDown(false)
		w.runner.Wake(request.WaitRegistry)
		vol, err := g.Create(t.Context(), testOp, in)
		must(t, err)
		if vol.Status != api.VolumeAvailable {
			t.Errorf("the volume is %s, want available", vol.Status)
		}
	})
}

// hungRegistry accepts requests and does not answer.
type hungRegistry struct{ *fakeRegistry }

func (hungRegistry) Type(ctx context.Context, _ string) (api.VolumeType, error) {
	<-ctx.Done()
	return api.VolumeType{}, ctx.Err()
}

func TestHungRegistryIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		g.env.Registry = hungRegistry{w.registry}
		_, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
		wantCode(t, err, api.CodeRegistryUnavailable)
		if made := changes(w); len(made) > 0 {
			t.Errorf("the host was changed: %v", made)
		}
	})
}

func TestRequestIsAnsweredWhileLibvirtIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		w.Inject(hvtest.Fault{Call: "CreateVolume", Do: w.Disconnect})
		in := api.VolumeCreate{Name: "db", SizeBytes: testSize}
		_, err := g.Create(t.Context(), testOp, in)
		wantCode(t, err, api.CodeHypervisorUnavailable)
		w.Reconnect()
		w.runner.Wake(request.WaitHypervisor)
		_, err = g.Create(t.Context(), testOp, in)
		must(t, err)
	})
}

// TestParkedOpIsAnsweredWithTheCallForTheOperator: whether the image was deleted cannot be
// observed.
func TestParkedOpIsAnsweredWithTheCallForTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
		vol := w.addVolume("db", inPoolOfFiles())
		for n := range 50 { // the first two reads come before the deletion
			w.Inject(hvtest.Fault{Call: "LookupVolume", Nth: 3 + n, Err: errors.New("I/O error")})
		}
		_, err := g.Delete(t.Context(), testOp, vol.ID, false)
		wantCode(t, err, api.CodeNeedsOperator)
		if st, err := w.runner.Status(t.Context(), testOp); err != nil || st.State != op.StateNeedsOperator {
			t.Errorf("the op is %s (%v), want needs_operator", st.State, err)
		}
	})
}

// deleted returns the error of a Delete.
func deleted(_ api.VolumeRegister, err error) error { return err }

func mustDelete(t *testing.T, g *Manager, opID string, vol api.Volume) {
	t.Helper()
	got, err := g.Delete(t.Context(), opID, vol.ID, false)
	must(t, err)
	if got.ID != vol.ID {
		t.Errorf("the answer is volume %q, want %q", got.ID, vol.ID)
	}
}
