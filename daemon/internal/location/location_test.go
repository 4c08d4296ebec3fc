// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

func TestPathsThatMeanSomethingElseAreRefused(t *testing.T) {
	dir := realDir(t)
	for name, path := range map[string]string{
		"relative":          "images/a.raw",
		"a QEMU protocol":   "nbd://host/export",
		"empty":             "",
		"with dots":         dir + "/../a.raw",
		"with a last slash": dir + "/a.raw/",
		"with a newline":    dir + "/a\nb.raw",
		"not UTF-8":         dir + "/\xff.raw",
		"too long":          dir + "/" + strings.Repeat("a/", 4000) + "a",
		"without directory": dir + "/none/a.raw",
	} {
		if got := api.CodeOf(location.Rules{}.CheckPath(path)); got != api.CodeInvalidArgument {
			t.Errorf("a path that is %s: code %q, want invalid_argument", name, got)
		}
	}
}

func TestPathMayNameWhatDoesNotExistYet(t *testing.T) {
	if err := (location.Rules{}).CheckPath(realDir(t) + "/new image.raw"); err != nil {
		t.Error(err)
	}
}

func TestSystemDirectoriesAreClosedUnlessAllowed(t *testing.T) {
	if got := api.CodeOf(location.Rules{}.CheckPath("/etc/passwd")); got != api.CodePermissionDenied {
		t.Errorf("code %q, want permission_denied", got)
	}
	if err := (location.Rules{AllowedPaths: []string{"/etc"}}).CheckPath("/etc/passwd"); err != nil {
		t.Errorf("with allowed_paths = /etc: %v", err)
	}
}

func TestWhatHasSecretsOfTheHostIsClosedByDefault(t *testing.T) {
	for _, dir := range []string{"/root", "/etc", "/var/lib/libvirt/qemu", "/var/log"} {
		if _, err := os.Stat(dir); err != nil {
			t.Logf("there is no %s here", dir)
			continue
		}
		if got := api.CodeOf(location.Rules{}.CheckPath(dir + "/x.raw")); got != api.CodePermissionDenied {
			t.Errorf("%s: code %q, want permission_denied", dir, got)
		}
	}
}

func TestAllowedPathsAreJudgedByWhereLinksLead(t *testing.T) {
	dir := realDir(t)
	allowed, other := filepath.Join(dir, "allowed"), filepath.Join(dir, "other")
	mkdir(t, allowed)
	mkdir(t, other)
	mkdir(t, allowed+"-not")
	link(t, other, filepath.Join(allowed, "out"))
	link(t, allowed, filepath.Join(dir, "alias"))
	write(t, filepath.Join(other, "secret"))
	link(t, filepath.Join(other, "secret"), filepath.Join(allowed, "innocent.raw"))
	for _, c := range []struct {
		dir, path string
		want      api.Code
	}{
		{allowed, allowed + "/a.raw", ""},
		{allowed, dir + "/alias/a.raw", ""},
		{dir + "/alias", allowed + "/a.raw", ""},
		{allowed, allowed + "-not/a.raw", api.CodePermissionDenied},
		{allowed, allowed + "/out/a.raw", api.CodePermissionDenied},
		{allowed, allowed + "/innocent.raw", api.CodePermissionDenied},
	} {
		err := location.Rules{AllowedPaths: []string{c.dir}}.CheckPath(c.path)
		if got := api.CodeOf(err); got != c.want {
			t.Errorf("%s with %s allowed: code %q, want %q", c.path, c.dir, got, c.want)
		}
	}
}

func TestNoVolumeInADirectoryOfVolferry(t *testing.T) {
	dir := realDir(t)
	overlays := filepath.Join(dir, "overlays")
	mkdir(t, overlays)
	link(t, overlays, filepath.Join(dir, "alias"))
	for _, path := range []string{overlays + "/a.qcow2", dir + "/alias/a.qcow2"} {
		rules := location.Rules{AllowedPaths: []string{dir}, Own: []string{filepath.Join(dir, "state"), overlays}}
		if got := api.CodeOf(rules.CheckPath(path)); got != api.CodeInvalidArgument {
			t.Errorf("%s: code %q, want invalid_argument", path, got)
		}
	}
}

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

// realDir is a temporary directory by its real name.
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
