// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

type hypervisor interface {
	CanSwitch(ctx context.Context, images ...string) error
	StoredBitmaps(ctx context.Context, id string) ([]hv.StoredBitmap, error)
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Job(ctx context.Context, id, target string) (*hv.Job, error)
	EndConnections(ctx context.Context, id, address string) error
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
	Process(ctx context.Context, id, target string) (hv.Process, error)
	QEMUVersion(ctx context.Context, id string) (hv.Version, error)
	WriteDeniedBy(ctx context.Context, id, path string) (*hv.Rule, error)
	QEMUUser(ctx context.Context, id string) (hv.ProcessUser, error)
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
