// SPDX-License-Identifier: Apache-2.0

package led

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

type domains interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	SavingMemory(ctx context.Context, id string) (bool, error)
}

type processes interface {
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
	Process(ctx context.Context, id, target string) (hv.Process, error)
}

type tracker interface {
	StartTracking(ctx context.Context, id, target, name string, unitBytes int64) error
	SwapTracking(ctx context.Context, id, target, oldName, newName string, unitBytes int64) error
	Tracking(ctx context.Context, id, target string) ([]hv.DirtyBitmap, error)
	DirtyUnits(ctx context.Context, id, target, name string) ([]hv.DirtyRange, error)
	StopTracking(ctx context.Context, id, target, prefix string) error
}

type images interface {
	Fingerprint(ctx context.Context, path string) (string, error)
	Connect(ctx context.Context, path string) error
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	Mark(ctx context.Context, path, text string) error
	Marked(ctx context.Context, path, text string) (bool, error)
}

type copier interface {
	Forget(ctx context.Context, key string) error
}

type registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	Migration(ctx context.Context, id string) (api.Migration, error)
}

type guards interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Enforced() error
}

type history interface {
	Copied(ctx context.Context, s *move.Spec) (bool, error)
	Made(ctx context.Context, s *move.Spec) (bool, error)
	Live(ctx context.Context, in *move.LiveInput, exceptOp string) (move.LiveHistory, error)
}
