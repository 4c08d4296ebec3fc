// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

func taken(path string, h location.Holder) error {
	if h.Words == "" {
		return nil
	}
	err := api.Errorf(api.CodeConflict, "%s %s", path, h.Words)
	if h.Volume != nil {
		err = err.With("volume_id", h.Volume.ID)
	}
	return err
}

func cannotTell(path string, why error) *api.Error {
	return api.Errorf(api.CodeStateForbidden, "cannot take %s: %v", path, why)
}

// inPool returns the image at a location in a pool, or nil if there is none. A missing or inactive
// pool is an error, because its content is unknown.
func (e *env) inPool(ctx context.Context, l api.Location) (*hv.PoolVolume, error) {
	pools, err := e.Pools.Pools(ctx)
	if err != nil {
		return nil, request.HV(err)
	}
	if _, err := location.Pool(pools, l.Pool); err != nil {
		return nil, err
	}
	found, err := e.Pools.LookupVolume(ctx, l.Pool, l.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return nil, nil
	}
	return found, request.HV(err)
}

func (e *env) checkUnused(ctx context.Context, path, verdict string) error {
	if err := e.checkNamed(ctx, path, "", verdict); err != nil {
		return err
	}
	return e.checkHeld(ctx, path, verdict)
}

// checkNamed refuses an image that a domain of this host names, except the domain with the id
// allowedID.
func (e *env) checkNamed(ctx context.Context, path, allowedID, verdict string) error {
	doms, err := e.Guests.Domains(ctx)
	if err != nil {
		return request.HV(err)
	}
	doms = slices.DeleteFunc(doms, func(d hv.Domain) bool { return allowedID != "" && d.ID == allowedID })
	domain, target, err := location.DiskOf(doms, path)
	switch {
	case err != nil:
		return api.Errorf(api.CodeStateForbidden, "%s: nobody can tell whether %s is in use: %v; mend that filesystem, or take the disk from that instance", verdict, path, err)
	case domain != "":
		return api.Errorf(api.CodeVolumeInUse, "%s: %s is disk %s of %s in libvirt; take it from there, or adopt that instance if it is none of Volferry's (volferryctl instance adopt) and detach the volume",
			verdict, path, target, domain).With("instance", domain)
	}
	return nil
}

func (e *env) checkRecorded(ctx context.Context, vol api.Volume, verdict string) error {
	if e.Recorded == nil {
		return nil
	}
	return image.Prefixed(verdict, e.Recorded(ctx, vol))
}

// checkLeft refuses to delete a volume while a domain of this host names an image that the volume
// has left in a move (a released source): the guest may write there again, and only the volume has
// the writes made before that.
func (e *env) checkLeft(ctx context.Context, volumeID, verdict string) error {
	if e.Left == nil {
		return nil
	}
	left, err := e.Left(ctx, volumeID)
	if err != nil || len(left) == 0 {
		return request.HV(request.Registry(err))
	}
	doms, err := e.Guests.Domains(ctx)
	if err != nil {
		return request.HV(err)
	}
	for _, path := range left {
		domain, target, err := location.DiskOf(doms, path)
		switch {
		case err != nil:
			return api.Errorf(api.CodeStateForbidden, "%s: nobody can tell whether %s, which it has left by a move, is in use: %v; mend that filesystem, or take the disk from that instance", verdict, path, err)
		case domain != "":
			return api.Errorf(api.CodeVolumeInUse, "%s: disk %s of instance %s is at %s, which the volume has left by a move, so each may have what the other lacks; docs/how-to/recover.md (A guest on another image than its volume) says what can be done; if that image is to stand for itself, adopt it (`%s`)",
				verdict, target, domain, path, shell.Line("volferryctl", "instance", "adopt", domain, "--force")).With("instance", domain)
		}
	}
	return nil
}

// checkNoClone refuses to delete an image if this host sees a linked clone over it, even if the
// clone is no volume.
func (e *env) checkNoClone(ctx context.Context, path, verdict string) error {
	pools, err := e.Pools.Pools(ctx)
	if err != nil {
		return request.HV(err)
	}
	raw := map[string]bool{}
	if err := e.Registry.EachVolume(ctx, func(v *api.Volume) error {
		if v.Location.Format == api.FormatRaw {
			raw[v.Location.Path] = true
		}
		return nil
	}); err != nil {
		return request.Registry(err)
	}
	if clone := location.CloneOf(pools, path, func(file string) bool { return raw[file] }); clone != "" {
		return api.Errorf(api.CodeVolumeInUse, "%s: %s is the base image of %s, a linked clone that would be worth nothing without it; delete that first, or make it stand alone (`%s`, while no guest has it); `volferryctl volume forget` leaves the image where it is",
			verdict, path, clone, shell.Line("qemu-img", "rebase", "-f", "qcow2", "-b", "", "--", clone)).With("clone", clone)
	}
	return nil
}

func (e *env) checkHeld(ctx context.Context, path, verdict string) error {
	user, err := e.Images.InUse(ctx, path, nil)
	if err != nil {
		return fmt.Errorf("see who uses %s: %w", path, err)
	}
	if user != "" {
		return api.Errorf(api.CodeVolumeInUse, "%s: %s is in use: %s", verdict, path, user)
	}
	written, err := e.Images.Written(ctx, path)
	if err != nil {
		return fmt.Errorf("see who writes to %s: %w", path, err)
	}
	if written {
		return api.Errorf(api.CodeVolumeInUse, "%s: some process has %s open for writing; `%s` says which, unless it is on another host", verdict, path, shell.Line("fuser", "-v", "--", path))
	}
	return nil
}
