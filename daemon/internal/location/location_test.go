// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

func TestDiskOfLooksAtEveryLayerOfLiveAndConfig(t *testing.T) {
	chain := func(paths ...string) (images []hv.Image) {
		for _, p := range paths {
			images = append(images, hv.Image{Path: p})
		}
		return images
	}
	doms := []hv.Domain{
		{Name: "off", Config: []hv.Disk{{Target: "sda"}, {Target: "vda", Chain: chain("/i/top", "/i/base")}}},
		{Name: "on", Live: []hv.Disk{{Target: "vdb", Chain: chain("/i/live"), Mirror: &hv.Mirror{Image: hv.Image{Path: "/i/mirror"}}}}},
	}
	for path, want := range map[string]string{
		"/i/top": "off vda", "/i/base": "off vda", "/i/live": "on vdb", "/i/mirror": "on vdb", "/i/none": " ", "": " ",
	} {
		domain, target, err := location.DiskOf(doms, path)
		if got := domain + " " + target; got != want || err != nil {
			t.Errorf("DiskOf(%s) = %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestPoolIsRefusedWhereNoVolumeCanBe(t *testing.T) {
	pools := []hv.PoolInfo{
		{Name: "good", Type: "dir", Path: "/p", Active: true},
		{Name: "off", Type: "dir", Path: "/p"},
		{Name: "far", Type: "rbd", Active: true},
	}
	for name, want := range map[string]api.Code{
		"good": "", "off": api.CodeStateForbidden, "far": api.CodeInvalidArgument, "none": api.CodeNotFound,
	} {
		if _, err := location.Pool(pools, name); api.CodeOf(err) != want {
			t.Errorf("pool %s: %v, want code %q", name, err, want)
		}
	}
	for typ, want := range map[string]bool{"dir": true, "netfs": true, "logical": false} {
		if got := location.HoldsFiles(hv.PoolInfo{Type: typ}); got != want {
			t.Errorf("a pool of type %s holds files: %t, want %t", typ, got, want)
		}
	}
}

// realDir returns a temporary directory by its path without links.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestAFileInMemoryIsNoPlaceForAVolume(t *testing.T) {
	for path, refused := range map[string]bool{
		"/dev/no-such-device": true, "/dev/shm/image": true, t.TempDir() + "/image": false, "/none/of/these/image": false,
	} {
		if err := location.CheckPersistent(path); (err != nil) != refused {
			t.Errorf("%s: %v, want refused %v", path, err, refused)
		}
	}
}
