// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// TestAnImageIsInThePoolWhoseDirectoryHasIt under any path, and in no pool that only has a
// directory above it, or a directory of the whole host.
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

// Any user who can write in the pool can change the link, and an attach refuses another path than
// the pool's.
func TestAnImageBehindALinkInItsPoolHasThePathOfThePool(t *testing.T) {
	dir := realDir(t)
	for _, made := range []error{
		os.MkdirAll(dir+"/pool/below", 0o700), os.WriteFile(dir+"/pool/a.raw", nil, 0o600), os.Symlink(".", dir+"/pool/link"), os.Symlink("../link", dir+"/pool/below/up"),
	} {
		if made != nil {
			t.Fatal(made)
		}
	}
	pool := listed{hv.PoolInfo{Name: "files", Type: "dir", Path: dir + "/pool", Active: true}}
	for _, path := range []string{dir + "/pool/link/a.raw", dir + "/pool/below/up/a.raw", dir + "/pool/below/../a.raw"} {
		l, err := location.InPool(t.Context(), pool, api.Location{Path: path})
		if want := (api.Location{Pool: "files", Name: "a.raw", Path: dir + "/pool/a.raw"}); l != want || err != nil {
			t.Errorf("%s is %+v (%v), want %+v", path, l, err, want)
		}
	}
}

// TestAVolumeThatIsNotConnectedIsInTheOnlyPoolThatMayHaveIt, if no pool is known to have it.
func TestAVolumeThatIsNotConnectedIsInTheOnlyPoolThatMayHaveIt(t *testing.T) {
	unseen, no := hv.ErrNotConnected, hv.ErrNotFound
	for name, c := range map[string]struct {
		says map[string]error
		want string
	}{
		"one may have it":                {map[string]error{"a": unseen}, "a"},
		"one may, and another has it":    {map[string]error{"a": unseen, "b": nil}, "b"},
		"one may, and another does not":  {map[string]error{"a": no, "b": unseen}, "b"},
		"two may":                        {map[string]error{"a": unseen, "b": unseen}, ""},
		"none may":                       {map[string]error{"a": no}, ""},
		"one that is elsewhere may":      {map[string]error{"elsewhere": unseen}, ""},
		"one may that is not active now": {map[string]error{"off": unseen}, ""},
	} {
		h := saying(c.says)
		l, err := location.InPoolOnceConnected(t.Context(), h, api.Location{Path: "/dev/pts/lun"})
		if l.Pool != c.want || (l.Name == "lun") != (c.want != "") || l.Path != "/dev/pts/lun" || err != nil {
			t.Errorf("%s: %q of pool %q (%v), want pool %q", name, l.Name, l.Pool, err, c.want)
		}
		if l, err := location.InPool(t.Context(), h, api.Location{Path: "/dev/pts/lun"}); err != nil || l.Pool != "" && c.says[l.Pool] != nil {
			t.Errorf("%s: without its device it is in pool %q (%v)", name, l.Pool, err)
		}
	}
	if _, err := location.InPoolOnceConnected(t.Context(), saying{"a": hv.ErrUnavailable}, api.Location{Path: "/dev/pts/lun"}); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("a pool that does not answer: %v", err)
	}
}

// saying is a hypervisor with connector pools, and the answer of each about every volume.
type saying map[string]error

func (s saying) Pools(context.Context) (pools []hv.PoolInfo, err error) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		p := hv.PoolInfo{Name: name, Type: hv.ConnectorPool, Path: "/dev/pts", Active: name != "off"}
		if name == "elsewhere" {
			p.Path = "/dev/other"
		}
		pools = append(pools, p)
	}
	return pools, nil
}

func (s saying) LookupVolume(_ context.Context, pool, name string) (*hv.PoolVolume, error) {
	return &hv.PoolVolume{Name: name}, s[pool]
}

// listed is a hypervisor with one pool; libvirt lists all of its volumes except thin ones.
type listed struct{ pool hv.PoolInfo }

func (l listed) Pools(context.Context) ([]hv.PoolInfo, error) { return []hv.PoolInfo{l.pool}, nil }

func (l listed) LookupVolume(_ context.Context, _, name string) (*hv.PoolVolume, error) {
	if name == "thin" {
		return nil, hv.ErrNotFound
	}
	return &hv.PoolVolume{Name: name}, nil
}
