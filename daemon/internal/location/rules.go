// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
)

// Rules define where on this host a volume may be. The zero Rules permit nothing.
type Rules struct {
	// AllowedPaths are permitted places outside of active pools. Entries for files are
	// directories. Entries for block devices begin with /dev: a device, a directory, or a pattern
	// of path.Match.
	AllowedPaths []string
	// NBDServers are the NBD servers over TCP, as HOST:PORT, with exports that may be volumes.
	NBDServers []string
	// RBD are the Ceph clusters with images that may be volumes.
	RBD rbd.Clusters
	// Own are Volferry's own directories, which have the journal or the memory of guests. No
	// volume may be there.
	Own []string
	// Storage has the pools; nil means a host without pools.
	Storage Storage
}

// Storage has the hypervisor's calls that Rules need.
type Storage interface {
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	VolumeAt(ctx context.Context, path string) (pool string, err error)
	Connectable(ctx context.Context, path string) (bool, error)
}

const devices = "/dev"

// isDevice reports whether the path is a block device or, if absent, could only be one: in /dev,
// outside of /dev/shm.
func isDevice(real string) (bool, error) {
	st, err := Stat(real)
	if errors.Is(err, unix.ENOENT) {
		return below(real, devices) && !below(real, devices+"/shm"), nil
	}
	return st.Mode&unix.S_IFMT == unix.S_IFBLK, err
}

func (r Rules) checkDevice(ctx context.Context, path, real string) error {
	if slices.ContainsFunc(r.AllowedPaths, func(entry string) bool {
		return IsOfDevices(entry) && (names(entry, path) || names(entry, real))
	}) {
		return nil
	}
	if r.Storage != nil {
		pool, err := r.blockPoolAt(ctx, path)
		if err != nil || pool != "" {
			return err
		}
		// Connecting the device shows whether the target has it.
		if _, err := Stat(real); errors.Is(err, unix.ENOENT) {
			connectable, err := r.Storage.Connectable(ctx, path)
			if err != nil || connectable {
				return err
			}
		}
	}
	return api.Errorf(api.CodePermissionDenied, "%s is no volume of an active pool of block devices, and not in allowed_paths of volferryd.toml; make a pool of it (virsh pool-define-as, pool-start), or list the device or its directory there",
		path)
}

// blockPoolAt returns the active pool of block devices that has a volume at path, or "". It
// ignores a block device in the directory of a pool of files.
func (r Rules) blockPoolAt(ctx context.Context, path string) (string, error) {
	name, err := r.Storage.VolumeAt(ctx, path)
	if errors.Is(err, hv.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", NoPools(err)
	}
	pools, err := r.pools(ctx)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name && p.Active && !HoldsFiles(p) }) {
		return name, nil
	}
	return "", nil
}

func (r Rules) checkFile(ctx context.Context, path, real string) error {
	if r.allowsFile(real) {
		return nil
	}
	pools, err := r.pools(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Active && HoldsFiles(p) && within(real, p.Path) }) {
		return nil
	}
	outside := api.Errorf(api.CodePermissionDenied, "%s is in no active pool, and not in allowed_paths of volferryd.toml; make a pool of %s (virsh pool-define-as, pool-start), or list it there",
		path, filepath.Dir(real))
	if OfSystem(filepath.Dir(real)) {
		outside.Message = fmt.Sprintf("%s is in no active pool, and not in allowed_paths of volferryd.toml; %s is a directory of the system and no place for volumes: take one in a pool", path, filepath.Dir(real))
	}
	return outside
}

func (r Rules) allowsFile(real string) bool {
	return slices.ContainsFunc(r.AllowedPaths, func(entry string) bool { return !IsOfDevices(entry) && within(real, entry) })
}

func (r Rules) pools(ctx context.Context) ([]hv.PoolInfo, error) {
	if r.Storage == nil {
		return nil, nil
	}
	pools, err := r.Storage.Pools(ctx)
	if err != nil {
		return nil, NoPools(err)
	}
	return pools, nil
}

// NoPools returns the refusal of a request because the hypervisor does not list its pools.
func NoPools(why error) *api.Error {
	if errors.Is(why, hv.ErrUnavailable) {
		return api.Errorf(api.CodeHypervisorUnavailable, "%s", hv.Unanswered(why))
	}
	return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at the pools: %v", why)
}

// IsOfDevices reports whether an entry of AllowedPaths is for block devices: it begins with /dev.
// A file in /dev is in memory and cannot be a volume.
func IsOfDevices(entry string) bool {
	entry = filepath.Clean(entry)
	return entry == devices || strings.HasPrefix(entry, devices+"/")
}

func names(entry, path string) bool {
	matches, err := filepath.Match(entry, path)
	return (err == nil && matches) || below(path, entry)
}

// CheckEntry returns an error for an invalid entry of AllowedPaths.
func CheckEntry(entry string) error {
	if !filepath.IsAbs(entry) {
		return fmt.Errorf("%q is no absolute path", entry)
	}
	if _, err := filepath.Match(entry, ""); IsOfDevices(entry) && err != nil {
		return fmt.Errorf("%q is no pattern: %w", entry, err)
	}
	return nil
}

func resolve(path string) (string, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// within reports whether a clean path is below dir, or below the target of links in dir; nothing
// is within "".
func within(path, dir string) bool {
	if dir == "" {
		return false
	}
	if below(path, dir) {
		return true
	}
	real, err := filepath.EvalSymlinks(dir)
	return err == nil && below(path, real)
}
