// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"context"
	"fmt"
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
		if got := api.CodeOf(location.Rules{}.CheckPath(t.Context(), path)); got != api.CodeInvalidArgument {
			t.Errorf("a path that is %s: code %q, want invalid_argument", name, got)
		}
	}
}

// storage has pools, and the volumes of one of them by their paths.
type storage struct {
	pools []hv.PoolInfo
	in    map[string]string
	away  bool
}

func (s storage) Pools(context.Context) ([]hv.PoolInfo, error) {
	if s.away {
		return nil, hv.ErrUnavailable
	}
	return s.pools, nil
}

func (s storage) Connectable(_ context.Context, path string) (bool, error) {
	return s.in[path] == "target", nil
}

func (s storage) VolumeAt(_ context.Context, path string) (string, error) {
	if s.in[path] == "away" {
		return "", hv.ErrUnavailable
	}
	if pool, ok := s.in[path]; ok && pool != "target" {
		return pool, nil
	}
	return "", fmt.Errorf("%w: %s", hv.ErrNotFound, path)
}

// TestOnlyPoolsAndListedPathsAreAllowed, also for nonexistent files.
func TestOnlyPoolsAndListedPathsAreAllowed(t *testing.T) {
	dir := realDir(t)
	for _, sub := range []string{"images", "images/sub", "off", "lvm", "free"} {
		mkdir(t, filepath.Join(dir, sub))
	}
	write(t, filepath.Join(dir, "free", "secret"))
	link(t, filepath.Join(dir, "free", "secret"), filepath.Join(dir, "images", "innocent.raw"))
	host := storage{pools: []hv.PoolInfo{
		{Name: "images", Type: "dir", Path: dir + "/images", Active: true},
		{Name: "off", Type: "dir", Path: dir + "/off"},
		{Name: "lvm", Type: "logical", Path: dir + "/lvm", Active: true},
		{Name: "far", Type: "rbd", Active: true},
	}}
	rules := location.Rules{Storage: host}
	for path, want := range map[string]api.Code{
		dir + "/images/new image.raw": "",
		dir + "/images/sub/a.raw":     "",
		dir + "/images/innocent.raw":  api.CodePermissionDenied,
		dir + "/off/a.raw":            api.CodePermissionDenied,
		dir + "/lvm/a.raw":            api.CodePermissionDenied,
		dir + "/free/a.raw":           api.CodePermissionDenied,
		"/etc/passwd":                 api.CodePermissionDenied,
		"/tmp/a.raw":                  api.CodePermissionDenied,
		"/dev/shm/a.raw":              api.CodePermissionDenied,
		"/dev/null":                   api.CodePermissionDenied,
	} {
		err := rules.CheckPath(t.Context(), path)
		if got := api.CodeOf(err); got != want {
			t.Errorf("%s: code %q, want %q", path, got, want)
		}
		if err == nil {
			continue
		}
		if strings.HasSuffix(path, "innocent.raw") {
			if !strings.Contains(err.Error(), "symbolic link "+path) || strings.Contains(err.Error(), "allowed_paths") {
				t.Errorf("%s: %q; want the link, and no advice to allow the place where it leads", path, err)
			}
			continue
		}
		ofSystem := !strings.HasPrefix(path, dir)
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "allowed_paths") || strings.Contains(err.Error(), "pool-define") == ofSystem {
			t.Errorf("%s: %q; want the path, the key, and advice to make a pool of its directory if that is none of the system", path, err)
		}
	}
	rules.AllowedPaths = []string{dir + "/free", "/dev"}
	for path, want := range map[string]api.Code{
		dir + "/free/a.raw": "", dir + "/images/innocent.raw": api.CodePermissionDenied, // a link in a pool of files is not followed
		"/dev/shm/a.raw": api.CodePermissionDenied, "/dev/null": api.CodePermissionDenied, // entries in /dev are for devices
	} {
		if got := api.CodeOf(rules.CheckPath(t.Context(), path)); got != want {
			t.Errorf("%s with %v: code %q, want %q", path, rules.AllowedPaths, got, want)
		}
	}
}

func TestPoolsThatCannotBeSeenAreNoRefusalOfThePlace(t *testing.T) {
	rules := location.Rules{Storage: storage{away: true}}
	if got := api.CodeOf(rules.CheckPath(t.Context(), realDir(t)+"/a.raw")); got != api.CodeHypervisorUnavailable {
		t.Errorf("code %q, want hypervisor_unavailable", got)
	}
}

// TestABlockDeviceIsAllowedByAPoolOrByTheNameThatIsGiven: the target dm-N of the name means nothing
// to the author of the configuration.
func TestABlockDeviceIsAllowedByAPoolOrByTheNameThatIsGiven(t *testing.T) {
	loop := aLoopDevice(t)
	vg := filepath.Join("/dev", "vf-"+filepath.Base(realDir(t))+fmt.Sprint(os.Getpid()))
	mkdir(t, vg)
	t.Cleanup(func() { _ = os.RemoveAll(vg) })
	lv := vg + "/lv"
	link(t, loop, lv)
	write(t, vg+"/file")
	alias := realDir(t) + "/alias"
	link(t, loop, alias)
	outside := realDir(t) + "/outside"
	link(t, loop, outside)
	host := storage{
		pools: []hv.PoolInfo{
			{Name: "vg", Type: "logical", Path: vg, Active: true},
			{Name: "dir", Type: "dir", Path: filepath.Dir(alias), Active: true},
		},
	}
	for name, c := range map[string]struct {
		path    string
		in      map[string]string
		allowed []string
		want    api.Code
	}{
		"free":                            {path: lv, want: api.CodePermissionDenied},
		"a volume of a pool":              {path: lv, in: map[string]string{lv: "vg"}},
		"beside a volume of the pool":     {path: loop, in: map[string]string{lv: "vg"}, want: api.CodePermissionDenied},
		"a volume of an inactive pool":    {path: lv, in: map[string]string{lv: "gone"}, want: api.CodePermissionDenied},
		"libvirt goes away":               {path: lv, in: map[string]string{lv: "away"}, want: api.CodeHypervisorUnavailable},
		"by its directory":                {path: lv, allowed: []string{vg}},
		"by its name":                     {path: lv, allowed: []string{lv}},
		"by a pattern":                    {path: lv, allowed: []string{vg + "/l*"}},
		"by another pattern":              {path: lv, allowed: []string{vg + "/x*"}, want: api.CodePermissionDenied},
		"by where it leads":               {path: outside, allowed: []string{loop}},
		"by a part of its name":           {path: lv, allowed: []string{vg + "/l", vg[:len(vg)-1]}, want: api.CodePermissionDenied},
		"by a directory of files":         {path: alias, allowed: []string{filepath.Dir(alias)}, want: api.CodePermissionDenied},
		"by a link in a pool of files":    {path: alias, in: map[string]string{alias: "dir"}, want: api.CodePermissionDenied},
		"a file beside listed devices":    {path: vg + "/file", allowed: []string{vg}, want: api.CodePermissionDenied},
		"a listed device that is missing": {path: vg + "/none", allowed: []string{vg}},
		"a device that is missing":        {path: vg + "/none", want: api.CodePermissionDenied},
	} {
		host.in = c.in
		err := location.Rules{AllowedPaths: c.allowed, Storage: host}.CheckPath(t.Context(), c.path)
		if got := api.CodeOf(err); got != c.want {
			t.Errorf("%s: %s with %v allowed: %v, want code %q", name, c.path, c.allowed, err, c.want)
		}
		says := "allowed_paths"
		if c.path == alias {
			says = "symbolic link " + alias
		}
		if c.want == api.CodePermissionDenied && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q does not name %s", name, err, says)
		}
	}
}

// TestTheTextOfAPathThatIsNotCleanAllowsNothing: libvirt accepts such a path in a definition.
func TestTheTextOfAPathThatIsNotCleanAllowsNothing(t *testing.T) {
	loop := aLoopDevice(t)
	path := "/dev/mapper/../" + filepath.Base(loop)
	if got := api.CodeOf(location.Rules{AllowedPaths: []string{"/dev/mapper"}}.CheckPlace(t.Context(), path)); got != api.CodePermissionDenied {
		t.Errorf("code %q, want permission_denied", got)
	}
}

// aLoopDevice returns a block device of this machine, which the test does not change.
func aLoopDevice(t *testing.T) string {
	t.Helper()
	for n := range 8 {
		path := fmt.Sprintf("/dev/loop%d", n)
		if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0 {
			if os.Geteuid() != 0 {
				t.Skip("SKIPPED: only root makes a name in /dev")
			}
			return path
		}
	}
	t.Skip("SKIPPED: this machine has no loop device to look at")
	return ""
}

func TestAnEntryOfAllowedPathsIsAbsoluteAndAPattern(t *testing.T) {
	for entry, right := range map[string]bool{"/srv": true, "/dev/mapper/vg-*": true, "srv": false, "": false, "/dev/[": false, "/srv/[": true} {
		if err := location.CheckEntry(entry); (err == nil) != right {
			t.Errorf("%q: %v, want it right: %t", entry, err, right)
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
		err := location.Rules{AllowedPaths: []string{c.dir}}.CheckPath(t.Context(), c.path)
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
		if got := api.CodeOf(rules.CheckPath(t.Context(), path)); got != api.CodeInvalidArgument {
			t.Errorf("%s: code %q, want invalid_argument", path, got)
		}
	}
}
