// SPDX-License-Identifier: Apache-2.0

package lockd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// A sleeping guest keeps its leases. A suspended guest may be resumed at any moment, and libvirt
// then takes the lease of its top image.
func TestALeaseThatAGuestMayNeedIsNotDropped(t *testing.T) {
	image := func(path string) hv.Image { return hv.Image{Type: hv.SourceFile, Path: path} }
	domain := func(state hv.State, chain ...hv.Image) *hv.Domain {
		return &hv.Domain{State: state, Live: []hv.Disk{{Target: "vda", Chain: chain}}}
	}
	conf := Settings{manager: lockLockd, Auto: true}
	src, dst := image("/src"), image("/dst")
	for name, c := range map[string]struct {
		before, after *hv.Domain
		newTop        bool
		want          []string
	}{
		"a pivot, suspended":  {domain(hv.StatePaused, src), domain(hv.StatePaused, dst), true, []string{"/src", "/dst"}},
		"a pivot, running":    {domain(hv.StateRunning, src), domain(hv.StateRunning, dst), true, []string{"/src"}},
		"a pivot, asleep":     {domain(hv.StateOther, src), domain(hv.StateOther, dst), true, []string{"/src"}},
		"an abort, suspended": {domain(hv.StatePaused, dst, src), domain(hv.StatePaused, dst, src), false, []string{"/src"}},
		"an abort, running":   {domain(hv.StateRunning, dst, src), domain(hv.StateRunning, dst, src), false, []string{"/src"}},
		"an abort, asleep":    {domain(hv.StateOther, dst, src), domain(hv.StateOther, dst, src), false, []string{"/src"}},
	} {
		var got []string
		for _, l := range conf.Needless(c.before, c.after, "vda", c.newTop) {
			got = append(got, l.Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: dropped (-want +got):\n%s", name, diff)
		}
	}
}

// libvirt accepts strings in quotes of either kind.
func TestTheLockManagerIsReadAsLibvirtReadsIt(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lockd := Settings{manager: "lockd", Auto: true, files: "/leases #1"}
	for text, want := range map[string]Settings{
		"":                                        {},
		"#lock_manager = \"lockd\"\n":             {},
		"lock_manager = \"nop\"\n":                {},
		"lock_manager = \"lockd\"\n":              lockd,
		"user = 'root'\n lock_manager='lockd'\n":  lockd,
		"lock_manager = 'lockd' # of the site\n":  lockd,
		"lock_manager = \"\"\"lockd\"\"\" # same": lockd,
		"lock_manager = 'sanlock'\n":              {manager: "sanlock"},
	} {
		write("qemu.conf", text)
		write("qemu-lockd.conf", "auto_disk_leases = 1 # the default\nfile_lockspace_dir = '/leases #1' # on NFS\n")
		got, err := Read(filepath.Join(dir, "qemu"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Settings{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	if why := (Settings{manager: "sanlock"}).Unswitchable("/images/a.raw"); !strings.Contains(why, "sanlock") {
		t.Errorf("sanlock: %q", why)
	}
	if why := lockd.Unswitchable("/images/a.raw", "/dev/vg/a"); why != "" {
		t.Errorf("lockd: %q", why)
	}
	lockd.luns = "/leases/scsi"
	if why := lockd.Unswitchable("/images/a.raw", "/dev/vg/a"); !strings.Contains(why, "scsi_lockspace_dir") {
		t.Errorf("lockd with leases of LUNs: %q", why)
	}
}
