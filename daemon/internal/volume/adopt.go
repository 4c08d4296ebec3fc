// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Adopt makes a volume of an existing unused image of the given format. The image does not change.
func (m *Manager) Adopt(ctx context.Context, opID string, in api.VolumeAdopt) (api.Volume, error) {
	st, err := m.perform(ctx, request.Request{
		OpID: opID, Kind: kindAdopt, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideAdopt(ctx, in) },
	}, fmt.Sprintf("volume %.64s is being adopted", in.Name))
	if err != nil {
		return api.Volume{}, err
	}
	return volumeOf(st, stepNameRegister)
}

func (m *Manager) decideAdopt(ctx context.Context, in api.VolumeAdopt) (*input, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	id, err := m.host(ctx)
	if err != nil {
		return nil, err
	}
	l, err := m.findImage(ctx, in)
	if err != nil {
		return nil, err
	}
	if l, err = location.InPool(ctx, m.env.Pools, l); err != nil { // so that a drain of the pool finds it
		return nil, request.HV(err)
	}
	if err := m.checkFree(ctx, l); err != nil {
		return nil, err
	}
	if err := m.checkAdoptable(ctx, in.Name, l.Path); err != nil {
		return nil, err
	}
	if !in.Force && m.env.Adoptable != nil {
		if err := m.env.Adoptable(ctx, l.Path, "cannot adopt volume "+in.Name); err != nil {
			return nil, request.HV(request.Registry(err))
		}
	}
	return &input{Volume: api.VolumeRegister{
		ID: uuid.NewString(), Name: in.Name, Status: api.VolumeAvailable, Type: cmp.Or(in.Type, defaultType),
		Bootable: in.Bootable, Host: id, Location: l,
	}}, nil
}

func (m *Manager) findImage(ctx context.Context, in api.VolumeAdopt) (api.Location, error) {
	l := api.Location{Pool: in.Pool, Name: in.VolumeName, Path: in.Path, Format: in.Format}
	if in.Pool != "" {
		found, err := m.env.inPool(ctx, l)
		if err != nil {
			return l, err
		}
		if found == nil {
			return l, api.Errorf(api.CodeNotFound, "pool %s has no volume %.120q; `%s` shows what it has", in.Pool, in.VolumeName, shell.Line("virsh", "vol-list", "--", in.Pool))
		}
		l.Path = found.Path
	}
	if err := m.rules.CheckPath(ctx, l.Path); err != nil { // a link in a pool may lead anywhere
		return l, err
	}
	backing, err := m.env.Images.ReadBacking(ctx, l.Path, l.Format)
	if err == nil {
		l.Backing = backing
		err = m.rules.CheckPlaces(ctx, l)
	}
	var info image.Info
	if err == nil {
		info, err = m.env.Images.Inspect(ctx, l)
	}
	switch {
	case errors.Is(err, image.ErrAbsent):
		return l, noImage(l.Path)
	case err != nil:
		return l, err
	}
	l.SizeBytes, l.Identity = info.SizeBytes, info.Identity
	return l, m.env.Images.CheckFits(ctx, l, info)
}

// checkFree refuses an image if a volume or a migration of this host has the image, or one of its
// base images, by any path.
func (m *Manager) checkFree(ctx context.Context, l api.Location) error {
	look, err := m.env.Claims.Look(ctx)
	if err != nil {
		return err
	}
	holder, err := look.Holder(l.Path, location.Self{})
	if err != nil {
		return cannotTell(l.Path, err)
	}
	if err := taken(l.Path, holder); err != nil {
		return err
	}
	base, holder, err := look.BasesHolder(l)
	if err != nil {
		return cannotTell(base, err)
	}
	return taken("its base image "+base, holder)
}

// checkAdoptable refuses an image in use. The image of a domain's disk must be adopted with its
// instance: only an attachment excludes a second writer.
func (m *Manager) checkAdoptable(ctx context.Context, name, path string) error {
	err := m.env.checkUnused(ctx, path, "cannot adopt volume "+name)
	var used *api.Error
	if errors.As(err, &used) && used.Details["instance"] != nil {
		used.Message += fmt.Sprintf("; adopt it together with its instance: `%s`", shell.Line("volferryctl", "instance", "adopt", fmt.Sprint(used.Details["instance"])))
	}
	return err
}
