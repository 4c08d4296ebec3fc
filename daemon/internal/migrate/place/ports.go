// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

type domains interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

type pools interface {
	location.PoolVolumes
	CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []hv.Image) (*hv.PoolVolume, error)
	DeleteVolume(ctx context.Context, pool, name string) error
}

type images interface {
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	Fingerprint(ctx context.Context, path string) (string, error)
	Written(ctx context.Context, path string) (bool, error)
	RealPath(path string) (string, error)
}

type imageMaker interface {
	Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error
	CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error
	Allocate(ctx context.Context, path string, sizeBytes int64) error
}

type imageRemover interface {
	Remove(ctx context.Context, path string) error
	RemoveMade(ctx context.Context, path, fingerprint string) error
	MayWrite(path string) error
}

type imageRights interface {
	GiveRights(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	GiveBack(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	StoreLike(ctx context.Context, path, like string) ([]string, error)
}

type copier interface {
	Unanswered(key string) (bool, error)
	Forget(ctx context.Context, key string) error
}

type registry interface {
	Migration(ctx context.Context, id string) (api.Migration, error)
	RegisterMigration(ctx context.Context, opID string, m api.MigrationRegister) (api.Migration, error)
	TransitionMigration(ctx context.Context, opID, id string, t api.MigrationTransition) (api.Migration, error)
}

type history interface {
	Facts(ctx context.Context, s *move.Spec, exceptOp string) (move.Facts, error)
	Dst(ctx context.Context, s *move.Spec) (move.DstNote, error)
}
