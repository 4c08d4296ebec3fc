// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

type domains interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

type guests interface {
	Suspend(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	PowerOff(ctx context.Context, id string) error
}

type definitions interface {
	SetConfigChain(ctx context.Context, id string, target string, chain []hv.Image) error
}

type site interface {
	Volume(ctx context.Context, ref string) (api.Volume, error)
	Instance(ctx context.Context, ref string) (api.Instance, error)
	Attachments(ctx context.Context, volume string, instance string) ([]api.Attachment, error)
	PermitPause(ctx context.Context, opID string, migration string, in api.PausePermit) (api.Migration, error)
}

type guards interface {
	Set(domainID string, owner string, reason string) error
	Clear(domainID string, owner string) error
	Has(domainID string, owner string) (bool, error)
	IssueStartToken(domainID string, owner string) (string, error)
	RevokeStartToken(domainID string) error
	HookKnowsStartTokens() error
	Enforced() error
}

type locations interface {
	CheckLocation(ctx context.Context, l api.Location, verdict string) error
	CheckImages(l api.Location) error
}

type images interface {
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	InUse(ctx context.Context, path string, ours func(context.Context) (least int, most int, err error)) (string, error)
	Connect(ctx context.Context, path string) error
	Disconnect(ctx context.Context, path string) error
	Flush(ctx context.Context, path string) error
}

type movingGuests interface {
	MayStart(ctx context.Context, instanceID string) error
}

type moveParts interface {
	CheckPaused(ctx context.Context, vol api.Volume, att api.Attachment, beside []string) error
	StoodStill(ctx context.Context, migrationID string, instanceID string) error
}
