// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const defaultType = "default"

// Create makes an empty volume in a pool of this host and returns it when it is usable.
func (m *Manager) Create(ctx context.Context, opID string, in api.VolumeCreate) (api.Volume, error) {
	st, err := m.perform(ctx, request.Request{
		OpID: opID, Kind: kindCreate, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideCreate(ctx, in) },
	}, fmt.Sprintf("volume %.64s is being created", in.Name))
	if err != nil {
		return api.Volume{}, err
	}
	return volumeOf(st, stepNamePublish)
}

func (m *Manager) decideCreate(ctx context.Context, in api.VolumeCreate) (*input, error) {
	in.Format = cmp.Or(in.Format, api.FormatRaw)
	if err := in.Check(); err != nil {
		return nil, err
	}
	host, err := m.host(ctx)
	if err != nil {
		return nil, err
	}
	typ, err := m.env.Registry.Type(ctx, cmp.Or(in.Type, defaultType))
	if err != nil {
		return nil, err
	}
	if typ.Multiattach && in.Format != api.FormatRaw {
		return nil, api.Errorf(api.CodeUnsupportedDisk, "cannot create volume %s: type %s is multiattach, and only a raw volume can be open in several guests; leave --format out", in.Name, typ.Name)
	}
	pools, err := m.env.Pools.Pools(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the pools: %w", err)
	}
	pool, err := choosePool(pools, typ, in, m.env.Files.FreeBytes)
	if err != nil {
		return nil, err
	}
	name := in.Name
	if location.HoldsFiles(pool) {
		name += "." + string(in.Format)
	}
	l := api.Location{Pool: pool.Name, Name: name, Path: filepath.Join(pool.Path, name), Format: in.Format, SizeBytes: in.SizeBytes}
	if !location.HoldsFiles(pool) {
		rounded, err := m.env.Pools.RoundedBytes(ctx, pool.Name, in.SizeBytes)
		if err != nil {
			return nil, request.HV(err)
		}
		if rounded != in.SizeBytes {
			l.ImageBytes = rounded
		}
	}
	return &input{Volume: api.VolumeRegister{
		ID: uuid.NewString(), Name: in.Name, Status: api.VolumeCreating, Type: typ.Name, Bootable: in.Bootable, Host: host, Location: l,
	}}, nil
}
