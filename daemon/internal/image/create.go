// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"os"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// NewFile is what is told of an image file that is being made, so that it can be told
// later from what somebody else has put at its path.
type NewFile struct {
	// Temporary is the name of the file, in the directory where it shall be, until it is
	// whole: where the filesystem cannot have a file without a name. Empty: a random
	// one. A crash may leave it.
	Temporary string
	// Rights are those of the file, where its filesystem has them. Nil: it is root's alone.
	Rights *Rights
	// Left is told which of the rights the file does not have. Optional.
	Left func(rights []string)
	// Whole is told the fingerprint of the file (Storage.Fingerprint) when it is complete
	// and durable, and before it is at its path. On error it never gets there.
	// Optional.
	Whole func(fingerprint string) error
}

// TemporaryName returns a name for NewFile that no other file has.
func TemporaryName() string { return qemuimg.TemporaryName() }

// Create makes a new image. It returns fs.ErrExist if there is anything at its path.
func (Storage) Create(ctx context.Context, img hv.Image, sizeBytes int64, about NewFile) error {
	to := qemuimg.NewFile{
		Temporary: about.Temporary,
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
	return noSpace(qemuimg.Create(ctx, qemuImage(img), sizeBytes, to))
}

// asOf gives a new file these rights, and tells what it does not have of them.
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
