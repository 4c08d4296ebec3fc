// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"os"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// CreateOverlay makes an empty qcow2 overlay over backing, and returns when file and directory are
// on stable storage. If the overlay exists, empty and over the same backing image, it returns nil.
// If rights is not nil, the overlay gets these rights as far as its filesystem supports them.
//
// Over a NOCOW file the overlay is written in place too. Over a LUKS container the overlay is
// encrypted, with the container's passphrase.
func (s Storage) CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *Rights) error {
	passphrase, err := s.passphrase(ctx, backing)
	if err != nil {
		return err
	}
	about := qemuimg.NewFile{
		Empty:      func(f *os.File) { attributes{noCOW: s.at(backing.Path).attributes(backing.Path).noCOW}.give(f) },
		Filled:     func(f *os.File) error { return asOf(f, rights, nil) },
		Passphrase: passphrase,
	}
	return noSpace(qemuimg.CreateOverlay(ctx, path, s.host().qemuImage(backing), sizeBytes, about))
}

// CheckOverlay reports whether the overlay at path, over this backing and of this size, has no
// data of its own. It returns ErrAbsent if there is no file, and another error for any other file.
func (s Storage) CheckOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64) (bool, error) {
	empty, err := qemuimg.CheckOverlay(path, s.host().qemuImage(backing), sizeBytes)
	return empty, noImage(err)
}

func (h host) fold(ctx context.Context, overlay string, into []hv.Image, passphrase []byte) error {
	return noSpace(qemuimg.CommitOffline(ctx, overlay, *h.qemuChain(into), qemuimg.CommitOptions{Passphrase: passphrase}))
}
