// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

const testOp = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa"

// changes returns the changing calls of the hypervisor.
func changes(w *world) []string {
	return slices.DeleteFunc(w.Calls(), func(c string) bool {
		return slices.Contains([]string{"Pools", "LookupVolume", "Domains"}, c)
	})
}

// refusal is a request that must be refused with a code, and change nothing.
type refusal[Request any] struct {
	name    string
	prepare func(t *testing.T, w *world)
	change  func(in *Request)
	want    api.Code
	says    string // text in the message
}

func (c refusal[Request]) check(t *testing.T, in Request, ask func(g *Manager, in Request) error) {
	t.Run(c.name, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		if c.prepare != nil {
			c.prepare(t, w)
		}
		if c.change != nil {
			c.change(&in)
		}
		before := maps.Clone(w.registry.volumes)
		err := ask(g, in)
		wantCode(t, err, c.want)
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("message %q does not name %s", err, c.says)
		}
		if diff := cmp.Diff(before, w.registry.volumes); diff != "" {
			t.Errorf("the registry was changed (-want +got):\n%s", diff)
		}
		if made := changes(w); len(made) > 0 {
			t.Errorf("the host was changed: %v", made)
		}
	})
}

func TestCreateIsRefused(t *testing.T) {
	type prepare = func(*testing.T, *world)
	type change = func(*api.VolumeCreate)
	pool := func(p hv.PoolInfo) prepare { return func(_ *testing.T, w *world) { w.AddPool(p) } }
	for _, c := range []refusal[api.VolumeCreate]{
		{"no name", nil, change(func(in *api.VolumeCreate) { in.Name = "" }), api.CodeInvalidArgument, "name"},
		{"a name with a slash", nil, func(in *api.VolumeCreate) { in.Name = "../db" }, api.CodeInvalidArgument, "name"},
		{"a name like an option", nil, func(in *api.VolumeCreate) { in.Name = "-db" }, api.CodeInvalidArgument, "name"},
		{"a name that is no file name", nil, func(in *api.VolumeCreate) { in.Name = strings.Repeat("a", 201) }, api.CodeInvalidArgument, "200"},
		{"no size", nil, func(in *api.VolumeCreate) { in.SizeBytes = 0 }, api.CodeInvalidArgument, "size_bytes"},
		{"a negative size", nil, func(in *api.VolumeCreate) { in.SizeBytes = -512 }, api.CodeInvalidArgument, "size_bytes"},
		{"half a sector", nil, func(in *api.VolumeCreate) { in.SizeBytes = 1000 }, api.CodeInvalidArgument, "512"},
		{"an unknown format", nil, func(in *api.VolumeCreate) { in.Format = "vmdk" }, api.CodeInvalidArgument, "vmdk"},
		{"an unknown type", nil, func(in *api.VolumeCreate) { in.Type = "none" }, api.CodeNotFound, "none"},
		{"an unknown pool", nil, func(in *api.VolumeCreate) { in.Pool = "none" }, api.CodeNotFound, "none"},
		{
			"a pool that is off", pool(hv.PoolInfo{Name: "off", Type: "dir", Path: "/off"}),
			func(in *api.VolumeCreate) { in.Pool = "off" }, api.CodeStateForbidden, "off",
		},
		{
			"a pool without paths", pool(hv.PoolInfo{Name: "rbd", Type: "rbd", Active: true, FreeBytes: 1 << 40}),
			func(in *api.VolumeCreate) { in.Pool = "rbd" }, api.CodeInvalidArgument, "rbd",
		},
		{
			"a pool that libvirt cannot create in", pool(hv.PoolInfo{Name: "san", Type: "iscsi", Path: "/dev/disk/by-path", Active: true, FreeBytes: 1 << 40}),
			func(in *api.VolumeCreate) { in.Pool = "san" }, api.CodeInvalidArgument, "iscsi",
		},
		{"qcow2 in a pool of devices", nil, func(in *api.VolumeCreate) { in.Pool, in.Format = "lvm", api.FormatQcow2 }, api.CodeInvalidArgument, "raw"},
		{"a pool that the type does not allow", nil, func(in *api.VolumeCreate) { in.Pool, in.Type = "files", "bulk" }, api.CodePolicyDenied, "bulk"},
		{"no pool of the type", nil, func(in *api.VolumeCreate) { in.Type = "gone" }, api.CodeNoCapablePool, "gone"},
		{"no pool of the type for the format", nil, func(in *api.VolumeCreate) { in.Type, in.Format = "bulk", api.FormatQcow2 }, api.CodeNoCapablePool, "qcow2"},
		{"a pool without room", nil, func(in *api.VolumeCreate) { in.Pool, in.SizeBytes = "lvm", 1<<39+512 }, api.CodeNoSpace, "lvm"},
		{"no pool with room", nil, func(in *api.VolumeCreate) { in.SizeBytes = 1<<40 + 512 }, api.CodeNoSpace, "files"},
		{"a name that is taken", func(_ *testing.T, w *world) { w.addVolume("db", api.Location{Path: "/x"}) }, nil, api.CodeConflict, "db"},
		{
			"a file that is there", func(t *testing.T, w *world) { must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize)) },
			nil, api.CodeConflict, "db.raw",
		},
		{"libvirt away", func(_ *testing.T, w *world) { w.Disconnect() }, nil, api.CodeHypervisorUnavailable, "libvirt"},
		{"registry away", func(_ *testing.T, w *world) { w.registry.SetDown(true) }, nil, api.CodeRegistryUnavailable, "registry"},
		{"journal away", func(_ *testing.T, w *world) { w.journal.SetDown(true) }, nil, api.CodeJournalUnavailable, "nothing was changed"},
	} {
		c.check(t, api.VolumeCreate{Name: "db", SizeBytes: testSize}, func(g *Manager, in api.VolumeCreate) error {
			_, err := g.Create(t.Context(), testOp, in)
			return err
		})
	}
}

func TestAdoptIsRefused(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	at := filepath.Join(dir, "db.raw")
	inPool := func(in *api.VolumeAdopt) { in.Path, in.Pool, in.VolumeName = "", "files", "db.raw" }
	for _, c := range []refusal[api.VolumeAdopt]{
		{"no name", nil, func(in *api.VolumeAdopt) { in.Name = "" }, api.CodeInvalidArgument, "name"},
		{"no place", nil, func(in *api.VolumeAdopt) { in.Path = "" }, api.CodeInvalidArgument, "path"},
		{"two places", nil, func(in *api.VolumeAdopt) { in.Pool, in.VolumeName = "files", "db" }, api.CodeInvalidArgument, "exactly one"},
		{"a pool without a name in it", nil, func(in *api.VolumeAdopt) { in.Path, in.Pool = "", "files" }, api.CodeInvalidArgument, "volume_name"},
		{"a path with a name in a pool", nil, func(in *api.VolumeAdopt) { in.VolumeName = "db" }, api.CodeInvalidArgument, "volume_name"},
		{"no format", nil, func(in *api.VolumeAdopt) { in.Format = "" }, api.CodeInvalidArgument, "format"},
		{"an unknown format", nil, func(in *api.VolumeAdopt) { in.Format = "auto" }, api.CodeInvalidArgument, "auto"},
		{"a relative path", nil, func(in *api.VolumeAdopt) { in.Path = "db.raw" }, api.CodeInvalidArgument, "absolute"},
		{"a system file", nil, func(in *api.VolumeAdopt) { in.Path = "/etc/passwd" }, api.CodePermissionDenied, "/etc"},
		{"a link in a pool to a system file", func(t *testing.T, w *world) {
			w.addRealPool(dir)
			must(t, os.Symlink("/etc/passwd", dir+"/link.raw"))
			must(t, w.CreateImage(dir+"/link.raw", hvtest.Raw, testSize))
		}, func(in *api.VolumeAdopt) { in.Path, in.Pool, in.VolumeName = "", "real", "link.raw" }, api.CodePermissionDenied, "link.raw"},
		{"no image at the path", nil, func(in *api.VolumeAdopt) { in.Path += ".old" }, api.CodeNotFound, "db.raw.old"},
		{"no image in the pool", nil, inPool, api.CodeNotFound, "db.raw"},
		{"an unknown pool", nil, func(in *api.VolumeAdopt) { inPool(in); in.Pool = "none" }, api.CodeNotFound, "none"},
		{"raw that is said to be qcow2", nil, func(in *api.VolumeAdopt) { in.Format = api.FormatQcow2 }, api.CodeUnsupportedDisk, "qcow2"},
		{"qcow2 on a device that it may outgrow", func(t *testing.T, w *world) {
			w.addOnDevice(t, dir+"/dev")
			must(t, w.Extend(dir+"/dev", testSize))
		}, func(in *api.VolumeAdopt) { in.Path, in.Format = dir+"/dev", api.FormatQcow2 }, api.CodeUnsupportedDisk, "outgrow"},
		{"an image that is a volume", func(_ *testing.T, w *world) { w.addVolume("first", api.Location{Path: at}) }, nil, api.CodeConflict, "first"},
		{"a name that is taken", func(_ *testing.T, w *world) { w.addVolume("db", api.Location{Path: "/x"}) }, nil, api.CodeConflict, "db"},
		{"the disk of a domain", func(t *testing.T, w *world) { w.define(t, "web", at) }, nil, api.CodeVolumeInUse, "instance adopt web"},
		{"an image that somebody writes", func(_ *testing.T, w *world) { w.images.Writing[at] = true }, nil, api.CodeVolumeInUse, "fuser"},
		{"an image that is mounted", func(_ *testing.T, w *world) { w.images.Users[at] = "it is mounted" }, nil, api.CodeVolumeInUse, "mounted"},
		{"libvirt away", func(_ *testing.T, w *world) { w.Disconnect() }, nil, api.CodeHypervisorUnavailable, "libvirt"},
		{"libvirt away, image in a pool", func(_ *testing.T, w *world) { w.Disconnect() }, inPool, api.CodeHypervisorUnavailable, "libvirt"},
		{"registry away", func(_ *testing.T, w *world) { w.registry.SetDown(true) }, nil, api.CodeRegistryUnavailable, "registry"},
	} {
		prepare := c.prepare
		c.prepare = func(t *testing.T, w *world) {
			must(t, w.CreateImage(at, hvtest.Raw, testSize))
			if prepare != nil {
				prepare(t, w)
			}
		}
		c.check(t, api.VolumeAdopt{Name: "db", Path: at, Format: api.FormatRaw}, func(g *Manager, in api.VolumeAdopt) error {
			_, err := g.Adopt(t.Context(), testOp, in)
			return err
		})
	}
}

func TestDeleteIsRefused(t *testing.T) {
	for _, c := range []refusal[api.Volume]{
		{"attached", nil, func(v *api.Volume) {
			v.Status, v.Attachments = api.VolumeInUse, []api.Attachment{{InstanceID: "web-id", InstanceName: "web", DiskAttachment: api.DiskAttachment{Device: "vdb"}}}
		}, api.CodeVolumeInUse, "instance web as vdb"},
		{"attached and migrating", nil, func(v *api.Volume) {
			v.Status, v.MigrationID, v.Attachments = api.VolumeInUse, "move-id", []api.Attachment{{InstanceID: "web-id"}}
		}, api.CodeMigrationActive, "move-id"},
		{"migrating", nil, func(v *api.Volume) { v.MigrationID = "move-id" }, api.CodeMigrationActive, "move-id"},
		{"reserved", nil, func(v *api.Volume) { v.Status = api.VolumeReserved }, api.CodeVolumeNotAvailable, "reserved"},
		{"being made", nil, func(v *api.Volume) { v.Status = api.VolumeCreating }, api.CodeVolumeNotAvailable, "creating"},
		{"being deleted", nil, func(v *api.Volume) { v.Status = api.VolumeDeleting }, api.CodeVolumeNotAvailable, "deleting"},
		{"in error", nil, func(v *api.Volume) { v.Status = api.VolumeError }, api.CodeVolumeNotAvailable, "error"},
		{"on another host", nil, func(v *api.Volume) { v.Host = "beta" }, api.CodeNotYourHost, "beta"},
		{
			"a disk of a domain, behind the registry's back", func(t *testing.T, w *world) { w.define(t, "web", "/files/db.raw") },
			nil, api.CodeVolumeInUse, "web",
		},
		{
			"a domain has the image that it has left by a move", func(t *testing.T, w *world) {
				must(t, w.CreateImage("/old/db.raw", hvtest.Raw, testSize))
				w.left = []string{"/old/db.raw"}
				w.define(t, "web", "/old/db.raw")
			}, nil, api.CodeVolumeInUse, "/old/db.raw, which the volume has left by a move",
		},
		{
			"the journal has it elsewhere", func(_ *testing.T, w *world) { w.unrecorded = api.Errorf(api.CodeChainChanged, "it has moved") },
			nil, api.CodeChainChanged, "cannot delete volume db: it has moved",
		},
		{
			"the base image of a clone that nobody knows", func(t *testing.T, w *world) {
				dir := t.TempDir()
				w.addRealPool(dir)
				must(t, hosttest.WriteClone(filepath.Join(dir, "web.qcow2"), "/files/db.raw"))
			}, nil, api.CodeVolumeInUse, "web.qcow2, a linked clone",
		},
		{"mounted", func(_ *testing.T, w *world) { w.images.Users["/files/db.raw"] = "it is mounted" }, nil, api.CodeVolumeInUse, "mounted"},
		{
			"in a pool that is off", func(_ *testing.T, w *world) { w.AddPool(hv.PoolInfo{Name: "files", Type: "dir", Path: "/files"}) },
			nil, api.CodeStateForbidden, "files",
		},
		{"at a path of the system", nil, func(v *api.Volume) { v.Location = api.Location{Path: "/etc/passwd"} }, api.CodePermissionDenied, "/etc"},
		{
			"at a path that is not mounted", nil, func(v *api.Volume) { v.Location = api.Location{Path: "/none/of/these/db.raw"} },
			api.CodeInvalidArgument, "does not exist",
		},
		{"libvirt away", func(_ *testing.T, w *world) { w.Disconnect() }, nil, api.CodeHypervisorUnavailable, "libvirt"},
		{"registry away", func(_ *testing.T, w *world) { w.registry.SetDown(true) }, nil, api.CodeRegistryUnavailable, "registry"},
	} {
		var vol api.Volume
		prepare, change := c.prepare, c.change
		c.change = nil
		c.prepare = func(t *testing.T, w *world) {
			must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
			vol = w.addVolume("db", inPoolOfFiles())
			if change != nil {
				change(&vol)
				w.registry.volumes[vol.ID] = vol
			}
			if prepare != nil {
				prepare(t, w)
			}
		}
		c.check(t, api.Volume{}, func(g *Manager, _ api.Volume) error {
			return deleted(g.Delete(t.Context(), testOp, vol.ID, false))
		})
	}
}

// TestAnImageThatIsSpokenForByAnotherNameIsNotAdopted: the registry compares only names.
func TestAnImageThatIsSpokenForByAnotherNameIsNotAdopted(t *testing.T) {
	for name, spoken := range map[string]func(w *world, l api.Location){
		"is volume other already": func(w *world, l api.Location) { w.addVolume("other", l) },
		"is the destination of migration m of volume": func(w *world, l api.Location) {
			w.registry.migrations = []api.Migration{{ID: "m", Host: hostName, Dst: l}}
		},
		"is the source of migration m of volume": func(w *world, l api.Location) {
			w.registry.migrations = []api.Migration{{ID: "m", Host: hostName, Src: l}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			image, alias := filepath.Join(dir, "a.raw"), filepath.Join(dir, "b.raw")
			must(t, os.WriteFile(image, nil, 0o600))
			must(t, os.Link(image, alias))
			must(t, w.CreateImage(alias, hvtest.Raw, testSize))
			spoken(w, api.Location{Path: image, Format: api.FormatRaw, SizeBytes: testSize})
			_, err = w.start(t).Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "again", Path: alias, Format: api.FormatRaw})
			wantCode(t, err, api.CodeConflict)
			if !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want that it %s", err, name)
			}
		})
	}
}

// TestOfTwoNamesOfOneImageOneIsAdopted: both were free at their checks.
func TestOfTwoNamesOfOneImageOneIsAdopted(t *testing.T) {
	w := newWorld(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	names := []string{filepath.Join(dir, "a.raw"), filepath.Join(dir, "b.raw")}
	must(t, os.WriteFile(names[0], nil, 0o600))
	must(t, os.Link(names[0], names[1]))
	g := w.start(t)
	errs := make(chan error)
	for n, path := range names {
		must(t, w.CreateImage(path, hvtest.Raw, testSize))
		go func() {
			_, err := g.Adopt(t.Context(), testOp[:35]+string(rune('0'+n)), api.VolumeAdopt{Name: filepath.Base(path), Path: path, Format: api.FormatRaw})
			errs <- err
		}()
	}
	if a, b := <-errs, <-errs; (a == nil) == (b == nil) {
		t.Errorf("got %v and %v, want one of them refused", a, b)
	}
	if len(w.registry.volumes) != 1 {
		t.Errorf("there are %d volumes, want one", len(w.registry.volumes))
	}
}

func TestAnImageThatAVolumeHasLeftIsAdoptedOnlyByForce(t *testing.T) {
	w := newWorld(t)
	w.adoptable = func(_ context.Context, path, verdict string) error {
		return api.Errorf(api.CodeConflict, "%s: %s is the source that volume db has left", verdict, path)
	}
	path := filepath.Join(t.TempDir(), "a.raw")
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, w.CreateImage(path, hvtest.Raw, testSize))
	g, in := w.start(t), api.VolumeAdopt{Name: "old", Path: path, Format: api.FormatRaw}
	_, err := g.Adopt(t.Context(), testOp, in)
	wantCode(t, err, api.CodeConflict)
	if want := "cannot adopt volume old: " + path + " is the source"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if len(w.registry.volumes) > 0 {
		t.Errorf("registered %+v", w.registry.volumes)
	}
	in.Force = true
	_, err = g.Adopt(t.Context(), testOp, in)
	must(t, err)
}

// The end of a move deletes its source while that is being adopted.
func TestAnImageThatIsDeletedMeanwhileIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "a.raw")
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, w.CreateImage(path, hvtest.Raw, testSize))
	w.adoptable = func(ctx context.Context, path, _ string) error { return w.images.Remove(ctx, path) }
	_, err := w.start(t).Adopt(t.Context(), testOp, api.VolumeAdopt{Name: "old", Path: path, Format: api.FormatRaw})
	wantCode(t, err, api.CodeNotFound)
	if len(w.registry.volumes) > 0 {
		t.Errorf("registered %+v", w.registry.volumes)
	}
}
