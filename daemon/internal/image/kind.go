// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// kind works on the images of one kind of storage (medium.Kind). Its methods promise the same as
// the methods of Storage with the same names.
type kind interface {
	describer
	users
	maker
	cache
}

type describer interface {
	inspect(ctx context.Context, l api.Location) (Info, error)
	fingerprint(ctx context.Context, path string) (string, error)
	stamp(ctx context.Context, path string) (Stamp, error)
	realPath(path string) (string, error)
	readBacking(path string, format api.Format) (api.Backing, error)
	rights(ctx context.Context, path string) (*Rights, error)
	attributes(path string) attributes
}

type users interface {
	inUse(ctx context.Context, path string, ours rbd.Count) (string, error)
	locks(path string) (Locks, error)
	written(path string) (bool, error)
	mayOpen(user qemuUser, path string) error
}

type maker interface {
	create(ctx context.Context, img hv.Image, sizeBytes int64, about NewFile) error
	storeLike(path string, like attributes) (left []string, err error)
	fold(ctx context.Context, overlay string, into []hv.Image, passphrase []byte) error
	remove(path string) error
	removeMade(ctx context.Context, path, fingerprint string) error
}

type cache interface {
	connect(ctx context.Context, path string) error
	disconnect(ctx context.Context, path string) error
	flush(ctx context.Context, path string) error
	answers(ctx context.Context, path string) error
	fence(ctx context.Context, path string) error
}

func (s Storage) at(path string) kind {
	switch medium.Of(path).Protocol {
	case medium.ProtocolNBD:
		return exports{addressed{s.Network, s.Files, nil}}
	case medium.ProtocolRBD:
		return s.clusters()
	}
	return s.host()
}
