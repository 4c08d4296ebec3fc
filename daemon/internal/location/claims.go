// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Claims knows which images of this host are taken: the images of volumes, the reserved
// destinations of migrations, and Volferry's own files. Unlike the registry it compares images
// instead of paths. It is safe for concurrent use.
type Claims struct {
	Site  Site
	Pools func(ctx context.Context) ([]hv.PoolInfo, error)
	// HostID and HostName are the host's id and name at the registry.
	HostID, HostName string
	// SharedPools are pools that other hosts have with the same bytes, in addition to pools of a
	// shared type.
	SharedPools []string
	// Own are Volferry's directories: state, overlays, saved memory.
	Own []string

	mu sync.Mutex
}

// Site has the registry's calls that Claims needs. A list may exceed a host's memory, so a
// callback gets each element. An unreadable element fails the call.
type Site interface {
	EachVolume(ctx context.Context, do func(*api.Volume) error) error
	EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error
	// Migrations returns a volume's open migrations or, if all is true, all its migrations, newest
	// first. An empty volume stands for every volume.
	Migrations(ctx context.Context, volume string, all bool) ([]api.Migration, error)
}

// Holder identifies the owner of an image. The zero Holder means a free image.
type Holder struct {
	// Volume is set, without attachments, if the image belongs to a volume.
	Volume *api.Volume
	// BaseOf is set if the image is a base image of a volume.
	BaseOf *api.Volume
	// MigrationID is set if a migration has reserved the image.
	MigrationID string
	// Words continue a sentence that begins with the name of the image: "is volume web already".
	Words string
}

// Self identifies the images of the caller, which count as free.
type Self struct {
	// VolumeID is a volume, with all its migrations; MigrationID is one migration.
	VolumeID, MigrationID string
}

// Take calls register, which must store the claim at the registry, if the image at path is free.
// No other caller can take an image meanwhile, even by another name.
func (c *Claims) Take(ctx context.Context, path string, self Self, register func() error) (h Holder, err error) {
	err = c.Exclusive(func() error {
		look, err := c.Look(ctx)
		if err != nil {
			return err
		}
		if h, err = look.Holder(path, self); err != nil || h.Words != "" {
			return err
		}
		return register()
	})
	return h, err
}

// Exclusive calls do while no caller can take an image.
func (c *Claims) Exclusive(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return do()
}

// Look has the images of this host that were taken at one moment.
type Look struct {
	volumes []heldVolume
	moves   []openMove
	own     []string
}

type heldVolume struct {
	path string
	api.Volume
}

type openMove struct {
	id, volumeID, volumeName string
	ends                     []moveEnd
	bases                    api.Backing
}

type moveEnd struct{ what, path string }

// Look asks the registry which images are taken, and the hypervisor for its pools. It returns
// their errors.
func (c *Claims) Look(ctx context.Context) (*Look, error) {
	pools, err := c.Pools(ctx)
	if err != nil {
		return nil, err
	}
	look := &Look{own: c.Own}
	// Migrations are read first: if one ends before the volumes are read, its destination is read
	// as the place of its volume.
	err = c.Site.EachOpenMigration(ctx, func(m *api.Migration) error {
		move := openMove{id: m.ID, volumeID: m.VolumeID, volumeName: m.VolumeName}
		if path, here := c.pathHere(m.Host, m.Dst, pools); here {
			move.ends = append(move.ends, moveEnd{"destination", path})
		}
		if path, here := c.pathHere(m.Host, m.Src, pools); here {
			move.ends, move.bases = append(move.ends, moveEnd{"source", path}), m.Src.Backing
		}
		if len(move.ends) > 0 {
			look.moves = append(look.moves, move)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = c.Site.EachVolume(ctx, func(v *api.Volume) error {
		if path, here := c.pathHere(v.Host, v.Location, pools); here {
			held := heldVolume{path, *v}
			held.Attachments = nil
			look.volumes = append(look.volumes, held)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return look, nil
}

type claim struct {
	path     string
	volumeID string
	holder   func() Holder
	// shared is true for a base image of a volume: the image belongs to each of its clones.
	// migrationID is set if a migration has the claim.
	shared      bool
	migrationID string
}

func (l *Look) images(yield func(claim) bool) {
	for i := range l.volumes {
		v := &l.volumes[i]
		holder := func() Holder { return Holder{Volume: &v.Volume, Words: fmt.Sprintf("is volume %s already", v.Name)} }
		if !yield(claim{path: v.path, volumeID: v.ID, holder: holder}) {
			return
		}
	}
	for i := range l.moves {
		m := &l.moves[i]
		for _, end := range m.ends {
			holder := func() Holder {
				return Holder{MigrationID: m.id, Words: fmt.Sprintf("is the %s of migration %s of volume %s", end.what, m.id, m.volumeName)}
			}
			if !yield(claim{path: end.path, volumeID: m.volumeID, migrationID: m.id, holder: holder}) {
				return
			}
		}
	}
}

func (l *Look) bases(yield func(claim) bool) {
	for i := range l.volumes {
		v := &l.volumes[i]
		holder := func() Holder {
			return Holder{BaseOf: &v.Volume, Words: fmt.Sprintf("is a base image of volume %s, a linked clone", v.Name)}
		}
		for _, b := range v.Location.Backing.Images() {
			if !yield(claim{path: b.Path, volumeID: v.ID, holder: holder, shared: true}) {
				return
			}
		}
	}
	for i := range l.moves {
		m := &l.moves[i]
		holder := func() Holder {
			return Holder{MigrationID: m.id, Words: fmt.Sprintf("is a base image of the source of migration %s of volume %s", m.id, m.volumeName)}
		}
		for _, b := range m.bases.Images() {
			if !yield(claim{path: b.Path, volumeID: m.volumeID, migrationID: m.id, holder: holder}) {
				return
			}
		}
	}
}

// ErrCannotTell means that it is unknown whether an image is free. The image must not be taken.
var ErrCannotTell = errors.New("nobody can tell whose image it is")

// Holder returns the owner of the image at path, or ErrCannotTell. If the image only shares bytes
// with a taken image, the Holder has only Words. A base image counts as taken even if self is its
// clone, because it may have other clones.
func (l *Look) Holder(path string, self Self) (Holder, error) {
	return l.holder(path, self, l.images, l.bases)
}

// BaseHolder returns the owner of an image that will be a base image. Unlike Holder it does not
// count a base image as taken, because several clones may use it.
func (l *Look) BaseHolder(path string) (Holder, error) {
	return l.holder(path, Self{}, l.images)
}

// BasesHolder returns the first taken base image at a location, and its owner.
func (l *Look) BasesHolder(at api.Location) (base string, h Holder, err error) {
	for _, b := range at.Backing.Images() {
		if h, err = l.BaseHolder(b.Path); err != nil || h.Words != "" {
			return b.Path, h, err
		}
	}
	return "", Holder{}, nil
}

func (c claim) isOf(self Self) bool {
	return !c.shared && c.volumeID == self.VolumeID && self.VolumeID != "" || c.migrationID != "" && c.migrationID == self.MigrationID
}

func (l *Look) holder(path string, self Self, claims ...iter.Seq[claim]) (Holder, error) {
	place := PlaceOf(path)
	var unknown error
	var overlapping Holder
	for _, some := range claims {
		for c := range some {
			if c.isOf(self) {
				continue
			}
			same, overlaps, err := place.Meets(c.path)
			if same {
				return c.holder(), nil
			}
			if overlaps {
				overlapping = Holder{Words: fmt.Sprintf("shares bytes with %s, which %s", c.path, c.holder().Words)}
			}
			if err != nil {
				unknown = errors.Join(unknown, fmt.Errorf("cannot tell whether it %s: %w", c.holder().Words, err))
			}
		}
	}
	if overlapping.Words != "" {
		return overlapping, nil
	}
	own, err := ownFile(l.own, place)
	switch {
	case own != "":
		return Holder{Words: "is a file of Volferry itself, " + own}, nil
	case err != nil || unknown != nil:
		return Holder{}, fmt.Errorf("%w: %w", ErrCannotTell, errors.Join(unknown, err))
	}
	return Holder{}, nil
}

// pathHere returns this host's path of the image at a location of the given host. here is false if
// this host has other bytes there: only a shared pool, perhaps at another path, has the same
// bytes.
func (c *Claims) pathHere(host string, l api.Location, pools []hv.PoolInfo) (path string, here bool) {
	if l.Pool != "" {
		i := slices.IndexFunc(pools, func(p hv.PoolInfo) bool { return p.Name == l.Pool })
		if i >= 0 && (Shared(pools[i].Type) || slices.Contains(c.SharedPools, l.Pool)) {
			if HoldsFiles(pools[i]) && pools[i].Path != "" && l.Name != "" {
				return filepath.Join(pools[i].Path, l.Name), true
			}
			return l.Path, true
		}
	}
	return l.Path, host != "" && (host == c.HostID || host == c.HostName)
}

func ownFile(dirs []string, place Place) (name string, err error) {
	if place.absent {
		return "", nil
	}
	for _, dir := range dirs {
		walk := func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return ignoreAbsent(err)
			}
			same, err := place.Is(path)
			if err == nil && same {
				name = path
				return filepath.SkipAll
			}
			return err
		}
		if err := filepath.WalkDir(dir, walk); err != nil || name != "" {
			return name, err
		}
	}
	return "", nil
}
