// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Claims knows which images of this host belong to somebody: the images of volumes, the
// destinations that migrations have reserved, and Volferry's own files. It compares images
// and not paths, which the registry cannot do. It is safe for concurrent use; a host has
// one.
type Claims struct {
	Site  Site
	Pools func(ctx context.Context) ([]hv.PoolInfo, error)
	// HostID and HostName are the host's id and name at the registry.
	HostID, HostName string
	// SharedPools are pools in which other hosts see the same bytes, in addition to pools
	// whose type says so.
	SharedPools []string
	// Own are Volferry's directories: state, overlays, saved memory.
	Own []string

	mu sync.Mutex
}

// Site is the part of the registry that Claims asks.
type Site interface {
	Volumes(ctx context.Context) ([]api.Volume, error)
	// Migrations returns the open migrations of a volume, or all. An empty reference stands
	// for every volume.
	Migrations(ctx context.Context, volume string, all bool) ([]api.Migration, error)
}

// Holder says to whom an image belongs. The zero Holder is nobody.
type Holder struct {
	// Volume is set if it is the image of a volume.
	Volume *api.Volume
	// BaseOf is set if it is a base image of a volume.
	BaseOf *api.Volume
	// MigrationID is set if a migration has reserved it.
	MigrationID string
	// Words continue a sentence that begins with the name of the image: "is volume web
	// already".
	Words string
}

// Self says what belongs to the caller, so that it does not count.
type Self struct {
	// VolumeID is a volume, with all its migrations; MigrationID is one migration.
	VolumeID, MigrationID string
}

// Take calls then if the image at path belongs to nobody. Nobody else can take an image
// meanwhile: if two callers take one image by two names, the second is refused, provided
// that each registers what it takes in then, or before the call. Its errors are those of
// Look and of then.
func (c *Claims) Take(ctx context.Context, path string, self Self, then func() error) (h Holder, err error) {
	err = c.Exclusive(func() error {
		look, err := c.Look(ctx)
		if err != nil {
			return err
		}
		if h, err = look.Holder(path, self); err != nil || h.Words != "" {
			return err
		}
		return then()
	})
	return h, err
}

// Exclusive calls do while nobody takes an image.
func (c *Claims) Exclusive(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return do()
}

// Look knows which images belonged to somebody at one moment.
type Look struct {
	volumes []claim
	bases   []claim // base images of volumes
	open    []claim
	own     []string
}

// claim is a path of this host with whom it belongs to.
type claim struct {
	path     string
	volumeID string
	holder   Holder
}

// Look asks registry and hypervisor which images belong to somebody. Its errors are theirs.
func (c *Claims) Look(ctx context.Context) (*Look, error) {
	volumes, err := c.Site.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	migrations, err := c.Site.Migrations(ctx, "", false)
	if err != nil {
		return nil, err
	}
	pools, err := c.Pools(ctx)
	if err != nil {
		return nil, err
	}
	look := &Look{own: c.Own}
	for i := range volumes {
		v := &volumes[i]
		if path, here := c.pathHere(v.Host, v.Location, pools); here {
			look.volumes = append(look.volumes, claim{path, v.ID, Holder{Volume: v, Words: fmt.Sprintf("is volume %s already", v.Name)}})
			for _, b := range v.Location.Backing.Images() {
				look.bases = append(look.bases, claim{b.Path, v.ID, Holder{BaseOf: v, Words: fmt.Sprintf("is a base image of volume %s, a linked clone", v.Name)}})
			}
		}
	}
	for i := range migrations {
		m := &migrations[i]
		if path, here := c.pathHere(m.Host, m.Dst, pools); here {
			look.open = append(look.open, claim{path, m.VolumeID, Holder{MigrationID: m.ID, Words: fmt.Sprintf("is the destination of migration %s of volume %s", m.ID, m.VolumeName)}})
		}
		if path, here := c.pathHere(m.Host, m.Src, pools); here {
			look.open = append(look.open, claim{path, m.VolumeID, Holder{MigrationID: m.ID, Words: fmt.Sprintf("is the source of migration %s of volume %s", m.ID, m.VolumeName)}})
			for _, b := range m.Src.Backing.Images() {
				look.bases = append(look.bases, claim{b.Path, m.VolumeID, Holder{MigrationID: m.ID, Words: fmt.Sprintf("is a base image of the source of migration %s of volume %s", m.ID, m.VolumeName)}})
			}
		}
	}
	return look, nil
}

// ErrCannotTell says that it is unknown whether an image belongs to somebody, so that it
// may not be taken.
var ErrCannotTell = errors.New("nobody can tell whose image it is")

// Holder returns to whom the image at path belongs, or an image that overlaps it (of which it has the words
// alone), or ErrCannotTell. The base images of a
// linked clone count as taken like the clone itself, even for the clone's owner: others may
// use them too.
func (l *Look) Holder(path string, self Self) (Holder, error) {
	return l.holder(path, self, slices.Concat(l.volumes, l.open, l.bases))
}

// BaseHolder is Holder for an image that is to be a base image: several clones may use one.
func (l *Look) BaseHolder(path string) (Holder, error) {
	return l.holder(path, Self{}, slices.Concat(l.volumes, l.open))
}

// BasesHolder is BaseHolder for each base image at a location: it returns the first one that belongs to
// somebody, and to whom.
func (l *Look) BasesHolder(at api.Location) (base string, h Holder, err error) {
	for _, b := range at.Backing.Images() {
		if h, err = l.BaseHolder(b.Path); err != nil || h.Words != "" {
			return b.Path, h, err
		}
	}
	return "", Holder{}, nil
}

func (l *Look) holder(path string, self Self, claims []claim) (Holder, error) {
	place := PlaceOf(path)
	var unknown error
	var overlapping Holder
	for _, c := range claims {
		if c.holder.BaseOf == nil && (c.volumeID == self.VolumeID && self.VolumeID != "") || (c.holder.MigrationID != "" && c.holder.MigrationID == self.MigrationID) {
			continue
		}
		same, overlaps, err := place.Meets(c.path)
		if same {
			return c.holder, nil
		}
		if overlaps {
			overlapping = Holder{Words: fmt.Sprintf("shares bytes with %s, which %s", c.path, c.holder.Words)}
		}
		if err != nil {
			unknown = errors.Join(unknown, fmt.Errorf("cannot tell whether it %s: %w", c.holder.Words, err))
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

// pathHere is the path of a location on this host. Another host's file has other
// bytes here, whatever its path, unless it is in a pool that both see; that may be
// mounted elsewhere here.
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

// ownFile names the file in these directories that a place is, "" if it is none.
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
