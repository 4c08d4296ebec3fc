// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

type domains interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
}

type jobs interface {
	Job(ctx context.Context, id, target string) (*hv.Job, error)
	EndConnections(ctx context.Context, id, address string) error
}

type chains interface {
	CanSwitch(ctx context.Context, images ...string) error
	StoredBitmaps(ctx context.Context, id string) ([]hv.StoredBitmap, error)
}

type images interface {
	Answers(ctx context.Context, path string) error
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	Properties(path string) (image.Properties, error)
	FreeBytes(dir string) (int64, error)
	Reach(user hv.ProcessUser, dir string) error
	MayOpen(user hv.ProcessUser, path string) error
}

type history interface {
	BegunHeld(ctx context.Context, s *move.Spec, job hv.JobKind, process string) (bool, error)
}
