// SPDX-License-Identifier: Apache-2.0

package hvtest_test

import (
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// As with libvirt 11.3 and AppArmor: a fold of vda is possible until vdb has left the guest, until
// a disk could not be attached, and until the end of a job on vdb.
func TestTheFakeDeniesWhatIsBelowAnOverlayOnceItMakesTheRules(t *testing.T) {
	const file = "/etc/apparmor.d/libvirt/libvirt-x.files"
	disk := func(target string) hv.Disk {
		return hv.Disk{Target: target, Device: "disk", Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/" + target}}}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	overlay := hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/overlay"}
	for name, c := range map[string]struct {
		change func(f *hvtest.Fake) error
		denied bool
	}{
		"nothing else happened": {func(*hvtest.Fake) error { return nil }, false},
		"vdb has left":          {func(f *hvtest.Fake) error { return f.DetachDisk(t.Context(), "web", hv.Live, "vdb") }, true},
		"vdc was attached": {func(f *hvtest.Fake) error {
			must(t, f.CreateImage("/vdc", hvtest.Raw, 1<<20))
			return f.AttachDisk(t.Context(), "web", hv.Live, hv.DiskSpec{Target: "vdc", Image: disk("vdc").Chain[0]})
		}, false},
		"vdc could not be attached": {func(f *hvtest.Fake) error {
			err := f.AttachDisk(t.Context(), "web", hv.Live, hv.DiskSpec{Target: "vdc", Image: disk("vdb").Chain[0]})
			if !errors.Is(err, hvtest.ErrLocked) {
				t.Errorf("a disk with the image of another one: %v", err)
			}
			return nil
		}, true},
		"a job of vdb ended": {func(f *hvtest.Fake) error {
			must(t, f.CreateImage("/copy", hvtest.Raw, 1<<20))
			dst := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/copy"}
			must(t, f.BlockCopy(t.Context(), "web", "vdb", dst, hv.BlockCopyOptions{}))
			return f.AbortJob(t.Context(), "web", "vdb")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := hvtest.New()
			for _, target := range []string{"vda", "vdb"} {
				must(t, f.CreateImage("/"+target, hvtest.Raw, 1<<20))
			}
			must(t, f.CreateOverlay(overlay.Path, disk("vda").Chain[0], 1<<20))
			must(t, f.Define(hv.Domain{ID: "web", Name: "web", Config: []hv.Disk{disk("vda"), disk("vdb")}}))
			f.Confine(file)
			must(t, f.Start("web"))
			must(t, f.PutOverlay(t.Context(), "web", "vda", overlay))
			must(t, c.change(f))
			f.Step(1)
			rule, err := f.WriteDeniedBy(t.Context(), "web", "/vda")
			must(t, err)
			if (rule != nil) != c.denied {
				t.Errorf("the rule is %+v, want one: %t", rule, c.denied)
			}
			if err := f.CommitActive(t.Context(), "web", "vda", 0); (err != nil) != c.denied {
				t.Errorf("the fold begins: %v, want that it is denied: %t", err, c.denied)
			}
		})
	}
}
