// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"os"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// NewFile describes how an image file is made, and gives the caller its fingerprint before the
// file gets its path.
type NewFile struct {
	// Temporary is the name of the unfinished file in its final directory, for a filesystem
	// without unnamed files. If it is empty, the name is random. A crash may leave that file.
	Temporary string
	// Backing are the backing images of a qcow2 image, top first. They are not opened.
	Backing []hv.Image
	// Rights are the rights that the file gets, as far as its filesystem supports them. If they
	// are nil, only root has access.
	Rights *Rights
	// Like is optional: the path of an image. The file gets its attributes as far as the
	// filesystem supports them: NOCOW (written in place), extent size hint and project.
	Like string
	// Left is called with the rights that the file could not get. Optional.
	Left func(rights []string)
	// Whole is called with the fingerprint of the file (Storage.Fingerprint) when the file is
	// complete and durable. If Whole fails, the file never gets its path. Optional.
	Whole func(fingerprint string) error
}

// ClusterBytes is the cluster size of the qcow2 images that Volferry and libvirt make: QEMU's
// default.
const ClusterBytes = 64 << 10

// TemporaryName returns a unique name for NewFile.
func TemporaryName() string { return qemuimg.TemporaryName() }

// TemporaryPath returns the unfinished image's path or address.
func TemporaryPath(path, name string) string { return path[:strings.LastIndexByte(path, '/')+1] + name }

func (h host) create(ctx context.Context, img hv.Image, sizeBytes int64, about NewFile) error {
	to := qemuimg.NewFile{
		Temporary: about.Temporary,
		Empty:     func(f *os.File) { h.attributes(about.Like).give(f) },
		Filled:    func(f *os.File) error { return asOf(f, about.Rights, about.Left) },
	}
	if about.Whole != nil {
		to.Whole = func(f *os.File) error {
			fingerprint, err := location.FingerprintOf(f)
			if err != nil {
				return err
			}
			return about.Whole(fingerprint)
		}
	}
	return noSpace(qemuimg.Create(ctx, *h.qemuChain(append([]hv.Image{img}, about.Backing...)), sizeBytes, to))
}

func asOf(f *os.File, r *Rights, tell func(left []string)) error {
	if r == nil {
		return nil
	}
	left, err := giveRights(f, r)
	if err == nil && tell != nil && len(left) > 0 {
		tell(left)
	}
	return err
}
