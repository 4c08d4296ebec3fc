// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
)

// Rules say where images may be when they are opened.
var _ openfile.Places = Rules{}

// poolsTimeout bounds how long the pools are asked for while an image is opened.
const poolsTimeout = 30 * time.Second

// CheckFound refuses (permission_denied) an image to which a path leads by a symbolic link, unless
// root alone can have made the link so or the link leads to a place where images may be:
//
//   - In the directory of a pool of files a volume is a file itself. Whoever can write there, on
//     this host or on another one, can make a link or a device node in the place of a volume.
//   - Elsewhere the place where the image is has to be one of CheckPlace.
//
// The directories of pools, and Volferry's own, may be reached by links: they are in the
// configuration of root. Errors that wrap hv.ErrUnavailable are the hypervisor's.
func (r Rules) CheckFound(path, real string, device bool) error {
	if inOwn(r.Own, path) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), poolsTimeout)
	defer cancel()
	pool, err := r.poolOfFiles(ctx, path)
	if err != nil {
		return err
	}
	if pool != nil {
		return checkInPool(*pool, path, real, device)
	}
	for _, dir := range r.Own {
		if within(real, dir) {
			return api.Errorf(api.CodePermissionDenied, "%s leads to %s, which is Volferry's own", path, real)
		}
	}
	if device {
		return r.checkDevice(ctx, path, real)
	}
	if err := r.checkFile(ctx, path, real); err != nil {
		return linkedTo(path, real, "leads by a symbolic link to", err)
	}
	return nil
}

// inOwn reports whether a path is in a directory of Volferry's by its text.
func inOwn(own []string, path string) bool {
	return slices.ContainsFunc(own, func(dir string) bool { return dir != "" && below(path, dir) })
}

// poolOfFiles is the active pool of files in whose directory a path is, nil if there is none.
func (r Rules) poolOfFiles(ctx context.Context, path string) (*hv.PoolInfo, error) {
	if r.Storage == nil {
		return nil, nil
	}
	pools, err := r.Storage.Pools(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the pools, to open %s: %w", path, err)
	}
	for _, p := range pools {
		if p.Active && HoldsFiles(p) && isDirectory(filepath.Dir(path), p.Path) {
			return &p, nil
		}
	}
	return nil, nil
}

// isDirectory reports whether a path is that of a directory, by whatever link.
func isDirectory(path, dir string) bool {
	if filepath.Clean(dir) == path {
		return true
	}
	same, err := SameImage(path, dir)
	return err == nil && same
}

func checkInPool(pool hv.PoolInfo, path, real string, device bool) error {
	switch {
	case device:
		return api.Errorf(api.CodePermissionDenied, "%s is a device node (%s), and the volumes of pool %s are files: somebody has put it there, and nothing is read from it or written to it; look who could (ls -ld %s), and remove it",
			path, real, pool.Name, filepath.Dir(path))
	case filepath.Base(real) == filepath.Base(path) && isDirectory(filepath.Dir(real), pool.Path):
		return nil
	}
	return api.Errorf(api.CodePermissionDenied, "%s is a symbolic link to %s, and the volumes of pool %s are files themselves: somebody has put it there, and nothing is read from %[2]s or written to it; look who could (ls -ld %[4]s), and remove the link",
		path, real, pool.Name, filepath.Dir(path))
}

// linkedTo adds to a refusal of a place by which path somebody gets there, and how.
func linkedTo(path, real, how string, err error) error {
	var refused *api.Error
	if path == real || !errors.As(err, &refused) {
		return err
	}
	said := *refused
	said.Message = fmt.Sprintf("%s %s %s: %s", path, how, real, refused.Message)
	return &said
}

// CheckOpen refuses what is at a path and is no image, or is where no image may be (CheckFound). What
// is not there, or does not answer, is not refused.
func (r Rules) CheckOpen(path string) error {
	_, err := r.RealPath(path)
	return err
}

// RealPath is CheckOpen, and returns where the image is, without links. Of what is not there, or does
// not answer, it returns the path.
func (r Rules) RealPath(path string) (string, error) {
	if api.IsNetwork(path) {
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
