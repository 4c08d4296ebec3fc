// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/daemon/internal/diskspec"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

type place string

// A place is where a domain has the disk. odd is a use that no step creates or touches: the image
// at another target, under another image, in two disks, or in a block job.
const (
	absent   place = "absent"
	attached place = "attached"
	odd      place = "in use in another way"
)

type view struct {
	dom    *hv.Domain
	active bool
	// saved is true if the next start restores a save image with its old disks.
	saved        bool
	live, config place // live is valid only if active
	liveDisk     *hv.Disk
	configDisk   *hv.Disk
	displaced    *hv.Disk
}

type domainReader interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
}

func look(ctx context.Context, doms domainReader, in *input) (*view, error) {
	dom, err := doms.Domain(ctx, in.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return &view{live: absent, config: absent}, nil
	}
	if err != nil {
		return nil, request.HV(err)
	}
	v := &view{dom: dom, active: dom.State.Active(), live: absent}
	v.saved = !v.active && dom.ManagedSave
	disks := dom.Config
	if v.active {
		disks = slices.Concat(dom.Live, dom.Config)
	}
	if v.displaced, err = in.displacedIn(disks); err != nil {
		return v, err
	}
	if v.config, v.configDisk, err = placeIn(in, dom.Config); err != nil || !v.active {
		return v, err
	}
	v.live, v.liveDisk, err = placeIn(in, dom.Live)
	return v, err
}

func placeIn(in *input, disks []hv.Disk) (place, *hv.Disk, error) {
	var at *hv.Disk
	named, whole := 0, false
	image := location.PlaceOf(in.Location.Path)
	for i := range disks {
		d := &disks[i]
		if d.Target == in.Device {
			at = d
		}
		has, err := image.NamedBy(d)
		if err != nil {
			return odd, at, in.cannotSee(d, err)
		}
		if !has {
			continue
		}
		named++
		top, err := image.Is(d.Top().Path)
		if err != nil {
			return odd, at, in.cannotSee(d, err)
		}
		whole = whole || (d.Target == in.Device && top && in.overItsBases(d) && d.Mirror == nil)
	}
	switch {
	case named == 0:
		return absent, at, nil
	case named == 1 && whole:
		return attached, at, nil
	}
	return odd, at, nil
}

// displacedIn returns the attachment's disk if its image is not the volume's, as in a definition
// from before a move. It finds the disk by the attachment's device, or by the volume's id as
// serial. With such a disk, the absence of the volume's image proves nothing: the guest may have
// the old image.
func (in *input) displacedIn(disks []hv.Disk) (*hv.Disk, error) {
	image := location.PlaceOf(in.Location.Path)
	for i := range disks {
		d := &disks[i]
		atDevice := d.Target == in.Device && in.From != api.AttachmentReserved && in.From != api.AttachmentAttaching
		if !atDevice && d.Serial != in.VolumeID {
			continue
		}
		has, err := image.NamedBy(d)
		if err != nil {
			return nil, in.cannotSee(d, err)
		}
		if !has {
			return d, nil
		}
	}
	return nil, nil
}

func (in *input) onItsImage(verdict string, v *view) error {
	if v.displaced == nil {
		return nil
	}
	return api.Errorf(api.CodeChainChanged, "%s: disk %s of instance %s is at %s, and the volume is at %s, so the guest has, or will start with, another image than the volume's; nothing was changed. "+
		"`%s` shows what is known; docs/how-to/recover.md (A guest on another image than its volume) says what can be done; a disk that has nothing to do with the volume can be taken out (`%s`)",
		verdict, v.displaced.Target, in.InstanceName, v.displaced.Top().Path, in.Location.Path,
		shell.Line("volferryctl", "volume", "which", in.VolumeName), shell.Line("virsh", "detach-disk", "--", in.InstanceName, v.displaced.Target))
}

func (in *input) cannotSee(d *hv.Disk, err error) error {
	return fmt.Errorf("see whether disk %s of instance %s is %s: %w", d.Target, in.InstanceName, in.Location.Path, err)
}

func (in *input) overItsBases(d *hv.Disk) bool {
	bases := in.Location.Backing.Images()
	if len(d.Chain) > 1+len(bases) {
		return false
	}
	for i, img := range d.Chain[1:] {
		if filepath.Clean(img.Path) != bases[i].Path {
			return false
		}
	}
	return true
}

// gone reports whether no process has the disk, on any image, and no start will bring it back.
func (v *view) gone() bool {
	return v.live == absent && v.config == absent && !v.saved && v.displaced == nil
}

func (in *input) isWanted(d *hv.Disk, where, serial string) error {
	if wrong := in.wanted(d, serial); wrong != "" {
		return api.Errorf(api.CodeChainChanged, "disk %s of instance %s %s in %s", in.Device, in.InstanceName, wrong, where)
	}
	return nil
}

func (in *input) wanted(d *hv.Disk, serial string) string {
	switch {
	case d == nil:
		return "is not there"
	case !slices.Equal(d.Chain, in.chain()):
		return fmt.Sprintf("is on %v", d.Chain)
	case !d.Terminated:
		return "has a chain without an end"
	case d.Serial != serial:
		return fmt.Sprintf("has the serial %q", d.Serial)
	case !diskspec.InMode(d, in.DiskAttachment):
		return fmt.Sprintf("is read-only: %t", d.ReadOnly)
	case d.Shareable != in.Shareable:
		return fmt.Sprintf("is shareable: %t", d.Shareable)
	case d.Transient:
		return "is transient"
	case d.Uncarried != "":
		return "has " + d.Uncarried
	}
	return ""
}

func (in *input) changed(v *view) *api.Error {
	where := string(v.config) + " in the persistent definition"
	if v.active {
		where = string(v.live) + " in the running guest, " + where
	}
	return api.Errorf(api.CodeChainChanged, "disk %s of instance %s was changed by somebody else: %s is %s; `%s` shows what is there",
		in.Device, in.InstanceName, in.Location.Path, where, shell.Line("virsh", "dumpxml", "--", in.InstanceName))
}

// notSaved refuses an instance with a managed save image: its next start would restore its old
// disks.
func (in *input) notSaved(v *view) error {
	if !v.saved {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden,
		"instance %s has a managed save image, which would start it with its disks of then; start it, or remove the image (`%s`)",
		in.InstanceName, shell.Line("virsh", "managedsave-remove", "--", in.InstanceName))
}
