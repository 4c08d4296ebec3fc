// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

type definitions interface {
	DomainDefinition(ctx context.Context, id string) (hv.DomainDefinition, error)
	ParseDisk(definition string) (hv.Disk, error)
	DefineDomain(ctx context.Context, id string, def hv.DomainDefinition, disks []hv.DiskSpec) error
	UndefineDomain(ctx context.Context, id string) error
	DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (string, error)
}

type site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	Attachments(ctx context.Context, volume string, instance string) ([]api.Attachment, error)
	TransitionInstance(ctx context.Context, opID string, ref string, in api.InstanceTransition) (api.ShelvedInstance, error)
}

type guards interface {
	Set(domainID string, owner string, reason string) error
	Clear(domainID string, owner string) error
	Has(domainID string, owner string) (bool, error)
}

type locations interface {
	Connect(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error)
	Disconnect(ctx context.Context, vol api.Volume, att api.Attachment) error
}
