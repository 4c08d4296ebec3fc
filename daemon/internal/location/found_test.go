// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
)

// TestALinkInThePlaceOfAVolumeIsNotFollowed: any user who can write in the directory of a pool, on
// this host or another, could have made it.
func TestALinkInThePlaceOfAVolumeIsNotFollowed(t *testing.T) {
	dir := realDir(t)
	for _, sub := range []string{"pool", "other", "free", "secret", "state", "linked-to"} {
		mkdir(t, filepath.Join(dir, sub))
	}
	for _, file := range []string{"pool/a.raw", "other/b.raw", "free/c.raw", "secret/s", "state/journal", "linked-to/d.raw"} {
		write(t, filepath.Join(dir, file))
	}
	link(t, dir+"/linked-to", dir+"/linked")
	link(t, dir+"/pool", dir+"/alias")
	link(t, dir+"/state", dir+"/state-alias")
	link(t, dir+"/free", dir+"/free-alias")
	link(t, "a.raw", dir+"/pool/to-sibling")
	link(t, dir+"/secret/s", dir+"/pool/to-secret")
	link(t, dir+"/other/b.raw", dir+"/pool/to-other-pool")
	link(t, dir+"/free/c.raw", dir+"/pool/to-allowed")
	link(t, dir+"/secret/s", dir+"/linked-to/to-secret")
	link(t, dir+"/free/c.raw", dir+"/free/to-sibling")
	link(t, dir+"/pool/a.raw", dir+"/free/to-pool")
	link(t, dir+"/secret/s", dir+"/free/to-secret")
	link(t, dir+"/state/journal", dir+"/free/to-journal")
	link(t, dir+"/secret", dir+"/free/to-secrets")
	rules := &location.Rules{
		AllowedPaths: []string{dir + "/free", dir + "/state-alias"}, Own: []string{dir + "/state-alias"},
		Storage: storage{pools: []hv.PoolInfo{
			{Name: "pool", Type: "dir", Path: dir + "/pool", Active: true},
			{Name: "linked", Type: "netfs", Path: dir + "/linked/", Active: true},
			{Name: "other", Type: "dir", Path: dir + "/other", Active: true},
		}},
	}
	for path, want := range map[string]api.Code{
		"pool/a.raw":              "",
		"linked/d.raw":            "", // the directory of the pool is a link
		"alias/a.raw":             "",
		"free/to-sibling":         "",
		"free/to-pool":            "",
		"free-alias/c.raw":        "",
		"state-alias/journal":     "", // an overlay is there
		"pool/to-sibling":         api.CodePermissionDenied,
		"pool/to-secret":          api.CodePermissionDenied,
		"pool/to-other-pool":      api.CodePermissionDenied,
		"pool/to-allowed":         api.CodePermissionDenied,
		"alias/to-allowed":        api.CodePermissionDenied,
		"linked/to-secret":        api.CodePermissionDenied,
		"free/to-secret":          api.CodePermissionDenied,
		"free/to-secrets/s":       api.CodePermissionDenied,
		"free/to-journal":         api.CodePermissionDenied,
		"free-alias/to-journal":   api.CodePermissionDenied,
		"pool/nothing-there":      "",
		"free-alias/none/nothing": "",
	} {
		path = filepath.Join(dir, path)
		err := rules.CheckOpen(path)
		if api.CodeOf(err) != want || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if f, err := (openfile.Files{Places: rules}).Open(path, os.O_RDONLY); (err == nil) != (want == "") && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was opened: %v, %v", path, f != nil, err)
		}
	}
}

// TestADeviceNodeInThePlaceOfAVolumeIsNotOpened: the root user of another host can make one on a
// shared filesystem.
func TestADeviceNodeInThePlaceOfAVolumeIsNotOpened(t *testing.T) {
	dir := realDir(t)
	if err := unix.Mknod(dir+"/node", unix.S_IFBLK|0o600, int(unix.Mkdev(240, 99))); err != nil {
		t.Skipf("SKIPPED: device nodes cannot be made here: %v", err)
	}
	for what, rules := range map[string]*location.Rules{
		"in a pool":             {Storage: storage{pools: []hv.PoolInfo{{Name: "pool", Type: "dir", Path: dir, Active: true}}}},
		"in an allowed path":    {AllowedPaths: []string{dir}},
		"where nothing may be":  {},
		"in a pool and allowed": {AllowedPaths: []string{dir, "/dev"}, Storage: storage{pools: []hv.PoolInfo{{Name: "pool", Type: "dir", Path: dir, Active: true}}}},
	} {
		if err := rules.CheckOpen(dir + "/node"); api.CodeOf(err) != api.CodePermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAPipeInThePlaceOfAVolumeIsRefused(t *testing.T) {
	dir := realDir(t)
	if err := unix.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&location.Rules{AllowedPaths: []string{dir}}).CheckOpen(dir + "/pipe"); api.CodeOf(err) != api.CodeInvalidArgument {
		t.Error(err)
	}
}

// TestALinkIsNotFollowedWhileThePoolsCannotBeSeen, and the error is a temporary one.
func TestALinkIsNotFollowedWhileThePoolsCannotBeSeen(t *testing.T) {
	dir := realDir(t)
	write(t, dir+"/a")
	link(t, dir+"/a", dir+"/link")
	rules := &location.Rules{AllowedPaths: []string{dir}, Storage: storage{away: true}}
	if err := rules.CheckOpen(dir + "/link"); !errors.Is(err, hv.ErrUnavailable) {
		t.Error(err)
	}
	if err := rules.CheckOpen(dir + "/a"); err != nil {
		t.Errorf("without a link: %v", err)
	}
}

// TestAPipeBelowADiskDoesNotHoldUpTheComparison with other disks: only QEMU would wait for it.
func TestAPipeBelowADiskDoesNotHoldUpTheComparison(t *testing.T) {
	dir := realDir(t)
	write(t, dir+"/a.raw")
	if err := unix.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	disk := hv.Disk{Target: "vda", Chain: []hv.Image{{Path: dir + "/pipe", Format: "qcow2"}}}
	if named, err := location.Names(&disk, dir+"/a.raw"); named || err != nil {
		t.Errorf("%t, %v", named, err)
	}
}

// poolsOfFiles are pools with files as volumes.
type poolsOfFiles struct{ storage }

func (p poolsOfFiles) LookupVolume(_ context.Context, pool, name string) (*hv.PoolVolume, error) {
	for _, info := range p.pools {
		if info.Name == pool {
			return &hv.PoolVolume{Path: filepath.Join(info.Path, name)}, nil
		}
	}
	return nil, hv.ErrNotFound
}

// TestAPlaceFromOutsideIsHeldAgainstPoolsAndAllowedPaths, with its base images: attach, unshelve,
// moves, restores and resizes make this check.
func TestAPlaceFromOutsideIsHeldAgainstPoolsAndAllowedPaths(t *testing.T) {
	dir := realDir(t)
	for _, sub := range []string{"pool", "free", "secret"} {
		mkdir(t, filepath.Join(dir, sub))
	}
	for _, file := range []string{"pool/a.raw", "pool/base", "free/c.raw", "secret/s"} {
		write(t, filepath.Join(dir, file))
	}
	link(t, dir+"/secret/s", dir+"/pool/link.raw")
	link(t, dir+"/pool/base", dir+"/pool/base-link")
	link(t, dir+"/secret/s", dir+"/free/link.raw")
	host := poolsOfFiles{storage{pools: []hv.PoolInfo{{Name: "pool", Type: "dir", Path: dir + "/pool", Active: true}}}}
	rules := location.Rules{AllowedPaths: []string{dir + "/free"}, Storage: host}
	for what, c := range map[string]struct {
		pool, path, base string
		want             api.Code
	}{
		"a volume of a pool":                     {pool: "pool", path: "pool/a.raw"},
		"an image in an allowed path":            {path: "free/c.raw"},
		"an image in a pool that is not named":   {path: "pool/a.raw"},
		"a clone":                                {pool: "pool", path: "pool/a.raw", base: "pool/base"},
		"a link in a pool":                       {pool: "pool", path: "pool/link.raw", want: api.CodePermissionDenied},
		"a link in an allowed path":              {path: "free/link.raw", want: api.CodePermissionDenied},
		"a link in a pool that is not named":     {path: "pool/link.raw", want: api.CodePermissionDenied},
		"a file of the host":                     {path: "secret/s", want: api.CodePermissionDenied},
		"a clone over a file of the host":        {pool: "pool", path: "pool/a.raw", base: "secret/s", want: api.CodePermissionDenied},
		"a clone over a link to a base image":    {pool: "pool", path: "pool/a.raw", base: "pool/base-link", want: api.CodePermissionDenied},
		"a clone over a link to another file":    {pool: "pool", path: "pool/a.raw", base: "pool/link.raw", want: api.CodePermissionDenied},
		"an allowed image over one of the host":  {path: "free/c.raw", base: "secret/s", want: api.CodePermissionDenied},
		"a volume at another path than its pool": {pool: "pool", path: "free/c.raw", want: api.CodeConflict},
	} {
		l := api.Location{Pool: c.pool, Name: filepath.Base(c.path), Path: filepath.Join(dir, c.path), Format: api.FormatQcow2}
		if c.pool != "" && c.want == api.CodeConflict {
			l.Name = "a.raw"
		}
		if c.base != "" {
			l.Backing = api.NewBacking([]api.BaseImage{{Path: filepath.Join(dir, c.base), Format: api.FormatRaw}})
		}
		if err := rules.CheckLocation(t.Context(), host, l, "cannot attach volume x"); api.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}
