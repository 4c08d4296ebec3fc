// SPDX-License-Identifier: Apache-2.0

package location

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

var _ openfile.Places = Rules{}

const poolsTimeout = 30 * time.Second

// CheckFound refuses (permission_denied) an image if path contains a symbolic link, unless only
// root of this host can have made the link and it leads to a place where images may be:
//
//   - Below the directory of a pool of files, a link must lead into the same pool, and no volume
//     may be a link. A user who can write there, on this host or another, can put a link or a
//     device node in the place of a volume.
//   - Below Volferry's own directories no link is permitted.
//   - Elsewhere a link is permitted in a directory where only root of this host can make one. The
//     place of the image must pass CheckPlace.
//
// The paths of pools, allowed paths and Volferry's own directories may contain links, because root
// configures them. Errors that wrap hv.ErrUnavailable are the hypervisor's.
func (r Rules) CheckFound(path, real string, device bool) error {
	if dir := deepest(r.Own, path); dir != "" {
		return checkInOwn(dir, path, real, device)
	}
	ctx, cancel := context.WithTimeout(context.Background(), poolsTimeout)
	defer cancel()
	pools, err := r.poolsOfFiles(ctx, path)
	if err != nil {
		return err
	}
	pool := deepest(pathsOf(pools), path)
	dir := cmp.Or(deepest(append(r.filePaths(), pool), path), "/")
	if err := checkLinks(path, real, dir, pools); err != nil {
		return err
	}
	if pool := poolAround(filepath.Dir(real), pools); device && pool != nil {
		return api.Errorf(api.CodePermissionDenied, "%s is a device node (%s), and the volumes of pool %s are files: somebody has put it there, and nothing is read from it or written to it; look who could (ls -ld %s), and remove it",
			path, real, pool.Name, filepath.Dir(path))
	}
	for _, dir := range r.Own {
		if within(real, dir) {
			return api.Errorf(api.CodePermissionDenied, "%s leads to %s, which is Volferry's own", path, real)
		}
	}
	if dir == pool {
		return nil
	}
	return r.checkLinked(ctx, path, real, device)
}

func (r Rules) checkLinked(ctx context.Context, path, real string, device bool) error {
	if device {
		return r.checkDevice(ctx, path, real)
	}
	if err := r.checkFile(ctx, path, real); err != nil {
		return linkedTo(path, real, "leads by a symbolic link to", err)
	}
	return nil
}

// checkInOwn refuses a path below dir, one of Volferry's own directories, if it contains a link or
// leads to a device: with overlay_dir_shared other hosts can write there.
func checkInOwn(dir, path, real string, device bool) error {
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("follow the links in %s: %w", dir, err)
	}
	if device || real != filepath.Join(at, strings.TrimPrefix(path, dir)) {
		return api.Errorf(api.CodePermissionDenied, "%s leads to %s, and below %s, which is Volferry's own, nothing is a symbolic link or a device node: somebody has put it there, and nothing is read from it or written to it; look who could (ls -ld %[3]s), and remove it",
			path, real, dir)
	}
	return nil
}

// checkLinks refuses a path with a symbolic link, below dir, that others than root of this host
// can have made. It also refuses a path that no longer leads to real.
func checkLinks(path, real, dir string, pools []hv.PoolInfo) error {
	at, foreign, err := follow(path, dir, pools)
	switch {
	case err != nil:
		return err
	case foreign != nil && foreign.pool != nil:
		return api.Errorf(api.CodePermissionDenied, "%s leads to %s by the symbolic link %s in the directory of pool %s, where volumes are files themselves and no link leads out of the pool: somebody has put it there, and nothing is read from %[2]s or written to it; look who could (ls -ld %[5]s), and remove the link",
			path, real, foreign.path, foreign.pool.Name, filepath.Dir(foreign.path))
	case foreign != nil:
		return api.Errorf(api.CodePermissionDenied, "%s leads to %s by the symbolic link %s, which is not followed, since links in %s may be made by %s; name the image by the path at which it is, or have root of this host alone write there",
			path, real, foreign.path, filepath.Dir(foreign.path), foreign.who)
	case at != real:
		return api.Errorf(api.CodePermissionDenied, "%s led to %s and leads to %s now: somebody changes the directories in it; look who can write there, and try again", path, real, at)
	}
	return nil
}

func (r Rules) poolsOfFiles(ctx context.Context, path string) ([]hv.PoolInfo, error) {
	if r.Storage == nil {
		return nil, nil
	}
	pools, err := r.Storage.Pools(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the pools, to open %s: %w", path, err)
	}
	return slices.DeleteFunc(slices.Clone(pools), func(p hv.PoolInfo) bool { return !p.Active || !HoldsFiles(p) }), nil
}

func pathsOf(pools []hv.PoolInfo) (paths []string) {
	for _, p := range pools {
		paths = append(paths, p.Path)
	}
	return paths
}

func (r Rules) filePaths() []string {
	return slices.DeleteFunc(slices.Clone(r.AllowedPaths), IsOfDevices)
}

func linkedTo(path, real, how string, err error) error {
	var refused *api.Error
	if path == real || !errors.As(err, &refused) {
		return err
	}
	said := *refused
	said.Message = fmt.Sprintf("%s %s %s: %s", path, how, real, refused.Message)
	return &said
}

// CheckOpen refuses a path with anything but an image, or where no image may be (CheckFound). It
// accepts an absent image, and a path on a filesystem that does not answer.
func (r Rules) CheckOpen(path string) error {
	_, err := r.RealPath(path)
	return err
}

// RealPath makes the checks of CheckOpen, and returns the image's path without links. If the image
// is absent or its filesystem does not answer, it returns path.
func (r Rules) RealPath(path string) (string, error) {
	if !medium.Of(path).Path {
		return path, nil
	}
	if _, err := Stat(path); isAbsent(err) || errors.Is(err, ErrNoAnswer) {
		return path, nil
	}
	img, err := openfile.Files{Places: r}.Find(path, 0)
	if bad := (*openfile.Error)(nil); errors.As(err, &bad) {
		return path, api.Errorf(api.CodeInvalidArgument, "%s cannot be an image: %s", bad.Path, bad.Reason)
	}
	if isAbsent(err) {
		return path, nil
	}
	if err != nil {
		return path, err
	}
	defer img.Close()
	return img.Real, nil
}
