// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"os"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// CreateOverlay makes an empty qcow2 overlay over backing, and returns when file and directory are
// on stable storage. It returns nil for an existing empty overlay of the same backing image. The
// overlay gets these rights, if not nil, as far as its filesystem supports them.
//
// Over a file that is written in place (NOCOW) the overlay is written in place too. Over a LUKS
// container the overlay is encrypted, with the container's passphrase.
func (s Storage) CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *Rights) error {
	passphrase, err := s.passphrase(ctx, backing)
	if err != nil {
		return err
	}
	about := qemuimg.NewFile{
		Empty:      func(f *os.File) { attributes{noCOW: s.files().attributesAt(backing.Path).noCOW}.give(f) },
		Filled:     func(f *os.File) error { return asOf(f, rights, nil) },
		Passphrase: passphrase,
	}
	return noSpace(qemuimg.CreateOverlay(ctx, path, s.files().qemuImage(backing), sizeBytes, about))
}

// CheckOverlay reports whether the overlay at path, over this backing and of this size, has no
// data of its own. It returns ErrAbsent if there is no file, and another error for another file.
func (s Storage) CheckOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64) (bool, error) {
	empty, err := qemuimg.CheckOverlay(path, s.files().qemuImage(backing), sizeBytes)
	return empty, noImage(err)
}

// Fold merges the overlay into the top of a chain that equals its backing image, and returns when
// that is on stable storage. It reads the images below the top. It does not change the overlay, so
// an interrupted fold can be repeated.
func (s Storage) Fold(ctx context.Context, overlay string, into []hv.Image) error {
	if top := into[0]; medium.IsNetwork(top.Path) {
		is, err := inspectAddress(ctx, s.Network, top.Path, api.Format(top.Format))
		if err != nil {
			return err
		}
		to := copy.Image{Path: top.Path, Format: top.Format, SizeBytes: cmp.Or(top.SliceBytes, is.SizeBytes), Slice: top.SliceBytes != 0}
		if err := copy.Fold(ctx, copy.FoldSpec{Overlay: overlay, Into: to, Network: s.Network, Files: s.Files}); err != nil {
			return noSpace(err)
		}
		// The last flush may have ended in a cache of a server that has restarted since.
		_, err = inspectAddress(ctx, s.Network, top.Path, api.Format(top.Format))
		return err
	}
	passphrase, err := s.passphrase(ctx, into[0])
	if err != nil {
		return err
	}
	return noSpace(qemuimg.CommitOffline(ctx, overlay, *s.files().qemuChain(into), qemuimg.CommitOptions{Passphrase: passphrase}))
}
