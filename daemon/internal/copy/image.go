// SPDX-License-Identifier: Apache-2.0

package copy

import "github.com/volferry/volferry/daemon/internal/qemuimg"

// Image is an image of this host: a file, a device, or the address of an NBD export or an RBD
// image. Format is stated, never probed. Backing is what a qcow2 image is over, as it was stored,
// nil if it stands alone. SizeBytes is the virtual size as the caller knows it, 0 if it does not.
type Image struct {
	Path      string
	Format    string
	Backing   *qemuimg.Image
	SizeBytes int64
	// Slice says that the image is only the first SizeBytes of what is at Path, which is larger.
	// The rest is neither read nor written. Raw only.
	Slice bool
	// LUKS says that the image is compared as the guest sees it, and that QEMU encrypts it.
	LUKS bool
}

func (i Image) image() qemuimg.Image {
	img := qemuimg.Image{Path: i.Path, Format: i.Format, Backing: i.Backing, LUKS: i.LUKS}
	if i.Slice {
		img.SliceBytes = i.SizeBytes
	}
	return img
}
