// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
)

// tree makes a directory with directories and files (all names without a final /), and links by
// their targets.
func tree(t *testing.T, dirs, files []string, links map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	for _, name := range dirs {
		check(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for _, name := range files {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	for name, to := range links {
		check(t, os.Symlink(strings.ReplaceAll(to, "DIR", dir), filepath.Join(dir, name)))
	}
	return dir
}

// poolsAt are pools of files, each named by its directory.
type poolsAt []string

func (p poolsAt) Pools(context.Context) (all []hv.PoolInfo, err error) {
	for _, path := range p {
		all = append(all, hv.PoolInfo{Name: filepath.Base(path), Type: "dir", Path: path, Active: true})
	}
	return all, nil
}

func (poolsAt) VolumeAt(context.Context, string) (string, error) { return "", hv.ErrNotFound }

func (poolsAt) Connectable(context.Context, string) (bool, error) { return false, nil }

func (p poolsAt) LookupVolume(_ context.Context, pool, name string) (*hv.PoolVolume, error) {
	for _, path := range p {
		if filepath.Base(path) == pool {
			return &hv.PoolVolume{Name: name, Path: filepath.Join(path, name)}, nil
		}
	}
	return nil, hv.ErrNotFound
}

// finds returns the code of the refusal of a path, and checks that the open agrees with it.
func finds(t *testing.T, rules Rules, path string) api.Code {
	t.Helper()
	err := rules.CheckOpen(path)
	f, openErr := openfile.Files{Places: rules}.Open(path, os.O_RDONLY)
	if (err == nil) != (openErr == nil) {
		t.Errorf("%s: the check says %v, the open %v", path, err, openErr)
	}
	if f != nil {
		_ = f.Close()
	}
	return api.CodeOf(err)
}

// TestNoLinkLeadsOutOfThePoolThatItIsIn, neither in the place of an image nor of a directory above
// one: the root user of another host with the pool can make links there.
func TestNoLinkLeadsOutOfThePoolThatItIsIn(t *testing.T) {
	dir := tree(t,
		[]string{"shared/real/deep", "local", "free", "mounted/below", "shared/inner", "inner", "shared/state"},
		[]string{"shared/clone", "shared/real/base", "shared/real/deep/base", "local/web", "free/web", "mounted/below/base", "mounted/a", "inner/b", "shared/state/journal"},
		map[string]string{
			"shared/to-local": "DIR/local", "shared/to-free": "DIR/free", "shared/real/to-local": "DIR/local", "shared/real/web": "DIR/local/web",
			"shared/d": ".", "shared/real/up": "..", "shared/real/alias": "base",
			"pool": "DIR/mounted", "alias": "DIR/shared", "mounted/to-local": "DIR/local", "shared/inner/pool": "DIR/inner",
			"shared/file": "clone", "shared/own": "state/journal", "shared/real/own": "../state", "shared/to-inner": "DIR/inner", "shared/to-inner-pool": "inner/pool",
		})
	rules := Rules{
		AllowedPaths: []string{dir + "/free"}, Own: []string{dir + "/shared/state"},
		Storage: poolsAt{dir + "/shared", dir + "/local", dir + "/pool/", dir + "/shared/inner/pool"},
	}
	for path, want := range map[string]api.Code{
		"shared/real/base":           "", // a base image in a subdirectory
		"shared/real/deep/base":      "",
		"pool/below/base":            "", // the pool's own path has a link
		"mounted/below/base":         "", // and this one has none
		"alias/real/base":            "",
		"shared/inner/pool/b":        "", // the configuration permits it
		"shared/to-local/web":        api.CodePermissionDenied,
		"shared/to-free/web":         api.CodePermissionDenied,
		"shared/real/to-local/web":   api.CodePermissionDenied,
		"shared/real/web":            api.CodePermissionDenied,
		"shared/real/alias":          "", // in the pool
		"shared/d/clone":             "",
		"shared/real/up/clone":       "",
		"shared/d/file":              api.CodePermissionDenied,
		"shared/own":                 api.CodePermissionDenied,
		"shared/real/own/journal":    api.CodePermissionDenied,
		"shared/to-inner/b":          api.CodePermissionDenied,
		"shared/to-inner-pool/b":     api.CodePermissionDenied,
		"alias/to-local/web":         api.CodePermissionDenied,
		"pool/to-local/web":          api.CodePermissionDenied,
		"mounted/to-local/web":       api.CodePermissionDenied,
		"shared/real/../to-free/web": api.CodePermissionDenied,
	} {
		path = dir + "/" + path
		if got := finds(t, rules, path); got != want {
			t.Errorf("%s: code %q, want %q", path, got, want)
		}
	}
}

// TestAVolumeBelowALinkInItsPoolIsRefused: while the link leads to the pool itself, libvirt's path
// and this one are one image, but later it may lead elsewhere.
func TestAVolumeBelowALinkInItsPoolIsRefused(t *testing.T) {
	dir := tree(t, []string{"shared", "local"}, []string{"shared/web", "local/web"}, map[string]string{"shared/d": "."})
	pools := poolsAt{dir + "/shared", dir + "/local"}
	rules := Rules{Storage: pools}
	l := api.Location{Pool: "shared", Name: "web", Path: dir + "/shared/d/web", Format: api.FormatRaw}
	if err := rules.CheckLocation(t.Context(), pools, l, "cannot attach volume web"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("%v, want conflict", err)
	}
	check(t, os.Remove(dir+"/shared/d"))
	check(t, os.Symlink(dir+"/local", dir+"/shared/d"))
	if err := rules.CheckImages(l); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("after the link was exchanged: %v, want permission_denied", err)
	}
	l.Path = dir + "/shared/web"
	if err := rules.CheckLocation(t.Context(), pools, l, "cannot attach volume web"); err != nil {
		t.Errorf("at its own path: %v", err)
	}
}

// TestACloneIsNotTakenOverWhatIsVolferrysOwn, nor is a volume there, wherever such a directory is.
func TestACloneIsNotTakenOverWhatIsVolferrysOwn(t *testing.T) {
	dir := tree(t, []string{"pool/own", "free/own"}, []string{"pool/clone", "pool/base", "pool/own/save", "free/own/journal"}, nil)
	pools := poolsAt{dir + "/pool"}
	rules := Rules{AllowedPaths: []string{dir + "/free"}, Own: []string{dir + "/free/own", dir + "/pool/own"}, Storage: pools}
	for base, want := range map[string]api.Code{"pool/base": "", "free/own/journal": api.CodeInvalidArgument, "pool/own/save": api.CodeInvalidArgument} {
		l := api.Location{
			Pool: "pool", Name: "clone", Path: dir + "/pool/clone", Format: api.FormatQcow2,
			Backing: api.NewBacking([]api.BaseImage{{Path: filepath.Join(dir, base), Format: api.FormatRaw}}),
		}
		if err := rules.CheckLocation(t.Context(), pools, l, "cannot attach volume clone"); api.CodeOf(err) != want {
			t.Errorf("over %s: %v, want code %q", base, err, want)
		}
		if err := rules.CheckPlaces(t.Context(), l); api.CodeOf(err) != want {
			t.Errorf("adopted over %s: %v, want code %q", base, err, want)
		}
	}
	own := append(poolsAt{dir + "/pool/own"}, pools...)
	l := api.Location{Pool: "own", Name: "save", Path: dir + "/pool/own/save", Format: api.FormatRaw}
	if err := rules.CheckLocation(t.Context(), own, l, "cannot attach volume save"); api.CodeOf(err) != api.CodeInvalidArgument {
		t.Errorf("a pool at Volferry's own directory: %v", err)
	}
}

// TestALinkElsewhereCountsIfRootOfThisHostAloneCanHaveMadeIt: on a shared filesystem, or in a
// directory where a user may write, a link in an allowed path may lead to another guest's image.
func TestALinkElsewhereCountsIfRootOfThisHostAloneCanHaveMadeIt(t *testing.T) {
	dir := tree(t, []string{"pool", "nfs/sub", "local", "open", "user", "plain"}, []string{"pool/web", "nfs/a", "nfs/sub/a", "open/a", "user/a"},
		map[string]string{
			"nfs/web": "DIR/pool/web", "nfs/to-pool": "DIR/pool", "nfs/alias": "a", "nfs-alias": "DIR/nfs", "local/web": "DIR/pool/web", "local/nfs": "DIR/nfs/web",
			"open/web": "DIR/pool/web", "user/web": "DIR/pool/web", "plain/web": "DIR/pool/web",
		})
	check(t, os.Chmod(dir+"/open", 0o777))
	if err := os.Chown(dir+"/user", 12345, 0); err != nil {
		t.Skipf("SKIPPED: a directory of another user takes root: %v", err)
	}
	was := mountInfo
	mountInfo = dir + "/mountinfo"
	t.Cleanup(func() { mountInfo = was })
	check(t, os.WriteFile(mountInfo, fmt.Appendf(nil, "1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / %s/nfs rw - nfs4 server:/x rw\n", dir), 0o600))
	rules := Rules{
		AllowedPaths: []string{dir + "/nfs", dir + "/nfs-alias", dir + "/local", dir + "/open", dir + "/user"},
		Storage:      poolsAt{dir + "/pool"},
	}
	for path, want := range map[string]api.Code{
		"nfs/a":           "",
		"nfs/sub/a":       "",
		"nfs-alias/a":     "",
		"local/web":       "",
		"plain/web":       "", // in no allowed path: the target counts
		"open/a":          "",
		"nfs/web":         api.CodePermissionDenied,
		"nfs/to-pool/web": api.CodePermissionDenied,
		"nfs/alias":       api.CodePermissionDenied,
		"nfs-alias/web":   api.CodePermissionDenied,
		"local/nfs":       api.CodePermissionDenied, // through a link there to one on the network
		"open/web":        api.CodePermissionDenied,
		"user/web":        api.CodePermissionDenied,
	} {
		path = dir + "/" + path
		if got := finds(t, rules, path); got != want {
			t.Errorf("%s: code %q, want %q", path, got, want)
		}
	}
}

// TestALinkThatIsExchangedMeanwhileIsNotTakenForTheOneThatWasFollowed.
func TestALinkThatIsExchangedMeanwhileIsNotTakenForTheOneThatWasFollowed(t *testing.T) {
	dir := tree(t, []string{"free", "pool"}, []string{"free/a", "pool/web"}, map[string]string{"free/link": "a"})
	rules := Rules{AllowedPaths: []string{dir + "/free"}, Storage: poolsAt{dir + "/pool"}}
	if err := rules.CheckFound(dir+"/free/link", dir+"/free/a", false); err != nil {
		t.Fatal(err)
	}
	if err := rules.CheckFound(dir+"/free/link", dir+"/pool/web", false); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("the path led to another image when that was opened: %v", err)
	}
	check(t, os.Symlink("loop", dir+"/free/loop"))
	if err := rules.CheckFound(dir+"/free/loop", dir+"/pool/web", false); err == nil {
		t.Error("a loop of links leads somewhere")
	}
}

// TestALinkBelowVolferrysOwnDirectoryIsNotFollowed: with overlay_dir_shared the root user of
// another host can make one there, in the place of an overlay or of this host's directory. The path
// of the directory itself may contain links.
func TestALinkBelowVolferrysOwnDirectoryIsNotFollowed(t *testing.T) {
	dir := tree(t, []string{"mounted/this-host", "secret", "pool"}, []string{"mounted/this-host/m.qcow2", "secret/m.qcow2", "pool/web"},
		map[string]string{
			"overlays": "DIR/mounted", "mounted/that-host": "DIR/secret", "mounted/that": "this-host",
			"mounted/this-host/x.qcow2": "DIR/pool/web", "mounted/this-host/y.qcow2": "m.qcow2",
		})
	rules := Rules{Own: []string{dir + "/overlays", dir + "/mounted"}, Storage: poolsAt{dir + "/pool"}}
	for path, want := range map[string]api.Code{
		"overlays/this-host/m.qcow2": "",
		"mounted/this-host/m.qcow2":  "",
		"overlays/that-host/m.qcow2": api.CodePermissionDenied,
		"mounted/that-host/m.qcow2":  api.CodePermissionDenied,
		"mounted/that/m.qcow2":       api.CodePermissionDenied,
		"overlays/this-host/x.qcow2": api.CodePermissionDenied,
		"mounted/this-host/y.qcow2":  api.CodePermissionDenied,
	} {
		path = dir + "/" + path
		if got := finds(t, rules, path); got != want {
			t.Errorf("%s: code %q, want %q", path, got, want)
		}
	}
	if _, err := (openfile.Files{Places: rules}).OpenDir(dir + "/overlays/that-host/new.qcow2"); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("an overlay is made by a link: %v", err)
	}
	if err := unix.Mknod(dir+"/mounted/node", unix.S_IFBLK|0o600, int(unix.Mkdev(240, 99))); err != nil {
		t.Skipf("SKIPPED: device nodes cannot be made here: %v", err)
	}
	if _, err := (openfile.Files{Places: rules}).Find(dir+"/mounted/node", 0); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("a device node: %v", err)
	}
}

// TestAPathOfVolferrysOwnNeedsNoPools: overlays are opened while libvirt is down.
func TestAPathOfVolferrysOwnNeedsNoPools(t *testing.T) {
	dir := tree(t, []string{"state"}, []string{"state/m.qcow2"}, map[string]string{"alias": "DIR/state"})
	rules := Rules{Own: []string{dir + "/alias"}, Storage: awayPools{}}
	if err := rules.CheckOpen(dir + "/alias/m.qcow2"); err != nil {
		t.Error(err)
	}
}

type awayPools struct{ poolsAt }

func (awayPools) Pools(context.Context) ([]hv.PoolInfo, error) { return nil, hv.ErrUnavailable }
