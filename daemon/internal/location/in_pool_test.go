// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"context"
	"os"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// TestAnImageIsInThePoolWhoseDirectoryHasIt by whatever path it is known, and in no pool that
// only has a directory above it, or a directory of the whole host.
func TestAnImageIsInThePoolWhoseDirectoryHasIt(t *testing.T) {
	dir := realDir(t)
	for _, made := range []error{
		os.MkdirAll(dir+"/pool/below", 0o700), os.Mkdir(dir+"/devices", 0o700), os.WriteFile(dir+"/pool/a.raw", nil, 0o600),
		os.Symlink(dir+"/pool", dir+"/link"), os.Symlink("pool/a.raw", dir+"/alias"), os.Symlink("/dev/null", dir+"/devices/lv"),
	} {
		if made != nil {
			t.Fatal(made)
		}
	}
	files := hv.PoolInfo{Name: "files", Type: "dir", Path: dir + "/pool", Active: true}
	linked, off := files, files
	linked.Path, off.Active = dir+"/link/", false
	volumes := hv.PoolInfo{Name: "lvm", Type: "logical", Path: dir + "/devices", Active: true}
	disks := hv.PoolInfo{Name: "disks", Type: "disk", Path: "/dev", Active: true}
	for name, c := range map[string]struct {
		path string
		pool hv.PoolInfo
		want string
	}{
		"by its path":                    {dir + "/pool/a.raw", files, "files a.raw"},
		"by a link to the directory":     {dir + "/link/a.raw", files, "files a.raw"},
		"of a pool at a link":            {dir + "/pool/a.raw", linked, "files a.raw"},
		"by a link to the file":          {dir + "/alias", files, "files a.raw"},
		"in a directory of the pool":     {dir + "/pool/below/a.raw", files, " "},
		"beside the pool":                {dir + "/a.raw", files, " "},
		"in a pool that is not active":   {dir + "/pool/a.raw", off, " "},
		"a device by its other name":     {"/dev/null", volumes, "lvm lv"},
		"a device that the pool has not": {"/dev/zero", volumes, " "},
		"a thin volume of the group":     {dir + "/devices/thin", volumes, " "},
		"a device in the pool of disks":  {"/dev/null", disks, " "},
	} {
		l, err := location.InPool(t.Context(), listed{c.pool}, api.Location{Path: c.path})
		if got := l.Pool + " " + l.Name; got != c.want || l.Path != c.path || err != nil {
			t.Errorf("%s: %q at %s, want %q at %s", name, got, l.Path, c.want, c.path)
		}
	}
}

// listed is a hypervisor with one pool, of which libvirt lists all but what is thin.
type listed struct{ pool hv.PoolInfo }

func (l listed) Pools(context.Context) ([]hv.PoolInfo, error) { return []hv.PoolInfo{l.pool}, nil }

func (l listed) LookupVolume(_ context.Context, _, name string) (*hv.PoolVolume, error) {
	if name == "thin" {
		return nil, hv.ErrNotFound
	}
	return &hv.PoolVolume{Name: name}, nil
}
