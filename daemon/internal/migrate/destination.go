// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// resolveDestination fills in where the volume shall go, and refuses a place
// that is not free for it.
func (g *Manager) resolveDestination(ctx context.Context, s *Spec, t api.MigrationTarget) error {
	s.Dst = api.Location{Format: s.Src.Format, SizeBytes: s.sizeBytes()}
	if t.ToFormat != "" {
		s.Dst.Format = t.ToFormat
	}
	if t.ToPool != "" {
		return g.destinationInPool(ctx, s, t.ToPool)
	}
	return g.destinationAtPath(ctx, s, t.ToPath)
}

// poolTypesOfFiles are the pools whose volumes are files named by us; the
// volumes of the others are block devices, which have no format but raw.
var poolTypesOfFiles = map[string]bool{"dir": true, "fs": true, "netfs": true}

func (g *Manager) destinationInPool(ctx context.Context, s *Spec, name string) error {
	pools, err := g.machine.hv.Pools(ctx)
	if err != nil {
		return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at the pools: %v", err)
	}
	var pool *hv.PoolInfo
	for i := range pools {
		if pools[i].Name == name {
			pool = &pools[i]
		}
	}
	switch {
	case pool == nil:
		return api.Errorf(api.CodeNotFound, "no pool %s on this host; `volferryctl pool list` shows them", name)
	case !pool.Active:
		return api.Errorf(api.CodeStateForbidden, "pool %s is not active; start it with `virsh pool-start %s`", name, name)
	case pool.Path == "":
		return api.Errorf(api.CodeInvalidArgument, "pool %s is of type %s, whose volumes have no path on this host", name, pool.Type)
	}
	files := poolTypesOfFiles[pool.Type]
	if !files && s.Dst.Format != api.FormatRaw {
		return api.Errorf(api.CodeInvalidArgument, "pool %s holds block devices, which can only be raw; say --to-format raw", name)
	}
	if s.Src.Pool == name && s.Src.Format == s.Dst.Format {
		return api.Errorf(api.CodeSameLocation, "volume %s is in pool %s already", s.VolumeName, name)
	}
	s.CreateDst, s.DstBlock = true, !files
	s.Dst.Pool, s.Dst.Name = name, destinationName(s, files)
	s.Dst.Path = filepath.Join(pool.Path, s.Dst.Name)
	return g.checkDestinationSpace(s, pool.FreeBytes, files)
}

// destinationName is a name that no other volume or migration has: it carries
// the migration's id, so that a person who finds the file can look it up.
func destinationName(s *Spec, file bool) string {
	name := fmt.Sprintf("%s-%s", s.VolumeName, s.MigrationID[:8])
	if file {
		name += "." + string(s.Dst.Format)
	}
	return name
}

// checkDestinationSpace: a sparse file needs what src takes; a block device all
// of it.
func (g *Manager) checkDestinationSpace(s *Spec, free int64, sparse bool) error {
	need := s.sizeBytes()
	if n, err := g.machine.images.AllocatedBytes(s.Src.Path); err == nil && sparse && !s.SrcBlock {
		need = min(need, n)
	}
	if free < need {
		return api.Errorf(api.CodeNoSpace, "%s has %d bytes free and volume %s takes %d", filepath.Dir(s.Dst.Path), free, s.VolumeName, need).
			With("free_bytes", free).With("needed_bytes", need)
	}
	return nil
}

func (g *Manager) destinationAtPath(ctx context.Context, s *Spec, path string) error {
	if err := g.checkPath(path); err != nil {
		return err
	}
	s.Dst.Path = path
	if sameImage(path, s.Src.Path) {
		return api.Errorf(api.CodeSameLocation, "volume %s is at %s already", s.VolumeName, s.Src.Path)
	}
	if err := g.checkNotUsed(ctx, path); err != nil {
		return err
	}
	info, err := g.machine.images.Inspect(ctx, path, s.Dst.Format)
	if errors.Is(err, ErrNoImage) {
		return g.destinationToCreate(s)
	}
	if err != nil {
		return err
	}
	s.DstBlock = info.Block
	if info.Block && s.Dst.Format != api.FormatRaw {
		return api.Errorf(api.CodeInvalidArgument, "%s is a block device, which can only be raw; say --to-format raw", path)
	}
	if info.SizeBytes != s.sizeBytes() {
		return sizeMismatch(s.Src.Path, s.sizeBytes(), path, info.SizeBytes)
	}
	if info.Block {
		return nil
	}
	free, err := g.machine.images.FreeBytes(filepath.Dir(path))
	if err != nil {
		return err
	}
	return g.checkDestinationSpace(s, free+info.AllocatedBytes, true)
}

func (g *Manager) destinationToCreate(s *Spec) error {
	dir := filepath.Dir(s.Dst.Path)
	free, err := g.machine.images.FreeBytes(dir)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "cannot create %s: the directory %s does not exist", s.Dst.Path, dir)
	}
	s.CreateDst = true
	return g.checkDestinationSpace(s, free, true)
}

// maxPathBytes is Linux's PATH_MAX without its terminating zero.
const maxPathBytes = 4095

// checkPath refuses paths that could mean something else than they say to
// libvirt or QEMU, and paths outside of the directories that the configuration
// allows.
func (g *Manager) checkPath(path string) error {
	bad := func(why string) error {
		return api.Errorf(api.CodeInvalidArgument, "path %q %s", shorten(path), why)
	}
	switch {
	case len(path) > maxPathBytes:
		return bad("is too long")
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return bad("has characters that no path of a volume may have")
	case !filepath.IsAbs(path):
		return bad("is not absolute")
	case filepath.Clean(path) != path:
		return bad("is not clean: say " + filepath.Clean(path))
	}
	// With links followed: what a link inside an allowed directory points to is
	// not allowed by that.
	real, err := resolve(path)
	if err != nil {
		return bad("is in a directory that does not exist")
	}
	if within(real, g.cfg.OverlayDir) {
		return bad("is in the overlay directory, which is Volferry's own")
	}
	if len(g.cfg.AllowedPaths) == 0 {
		for _, dir := range systemDirs {
			if within(real, dir) {
				return api.Errorf(api.CodePermissionDenied, "%s is in %s, where volumes do not belong; allowed_paths in the configuration could say otherwise", path, dir)
			}
		}
		return nil
	}
	for _, dir := range g.cfg.AllowedPaths {
		if within(real, dir) {
			return nil
		}
	}
	return api.Errorf(api.CodePermissionDenied, "%s is in none of the directories that this host allows for volumes (%s); see allowed_paths in the configuration",
		path, strings.Join(g.cfg.AllowedPaths, ", "))
}

// systemDirs are where a volume may not go unless the configuration says so.
var systemDirs = []string{
	"/bin", "/boot", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/lib/volferry-registry",
}

// resolve follows the links in a path whose last part may not exist yet.
func resolve(path string) (string, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// within says whether a clean path is below dir.
func within(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
}

func shorten(s string) string {
	const limit = 120
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}

// checkNotUsed refuses an image that a domain of this host names, or that the
// kernel says is in use.
func (g *Manager) checkNotUsed(ctx context.Context, path string) error {
	doms, err := g.machine.hv.Domains(ctx)
	if err != nil {
		return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at the instances of this host: %v", err)
	}
	for i := range doms {
		for _, d := range append(append([]hv.Disk{}, doms[i].Live...), doms[i].Config...) {
			for _, img := range d.Chain {
				if img.Path != "" && sameImage(img.Path, path) {
					return api.Errorf(api.CodeDstInUse, "%s is disk %s of instance %s", path, d.Target, doms[i].Name)
				}
			}
		}
	}
	user, err := g.machine.images.InUse(ctx, path)
	if err != nil {
		return fmt.Errorf("see who uses %s: %w", path, err)
	}
	if user != "" {
		return api.Errorf(api.CodeDstInUse, "%s is in use: %s", path, user)
	}
	return nil
}

// sameImage says whether two paths name one file or device, by any link or
// device node.
func sameImage(a, b string) bool {
	if a == b {
		return true
	}
	var sa, sb unix.Stat_t
	if unix.Stat(a, &sa) != nil || unix.Stat(b, &sb) != nil {
		return false
	}
	if sa.Mode&unix.S_IFMT == unix.S_IFBLK && sb.Mode&unix.S_IFMT == unix.S_IFBLK {
		return sa.Rdev == sb.Rdev
	}
	return sa.Dev == sb.Dev && sa.Ino == sb.Ino
}
