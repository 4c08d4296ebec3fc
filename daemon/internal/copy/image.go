// SPDX-License-Identifier: Apache-2.0

package copy

import "github.com/volferry/volferry/daemon/internal/qemuimg"

// Image is an image of this host: a file, a device, or the address of an NBD export or an RBD
// image. Format is stated, never probed. Backing is the stored backing image of a qcow2 image, or
// nil. SizeBytes is the virtual size, 0 if unknown.
type Image struct {
	Path      string
	Format    string
	Backing   *qemuimg.Image
	SizeBytes int64
	// Slice: the image is the first SizeBytes of the larger raw file or device at Path. The rest
	// is neither read nor written.
	Slice bool
	// LUKS: QEMU encrypts the image, and a comparison reads it decrypted, as the guest does.
	LUKS bool
}

func (i Image) image() qemuimg.Image {
	img := qemuimg.Image{Path: i.Path, Format: i.Format, Backing: i.Backing, LUKS: i.LUKS}
	if i.Slice {
		img.SliceBytes = i.SizeBytes
	}
	return img
}
