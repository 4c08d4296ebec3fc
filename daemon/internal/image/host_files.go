// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

// hostFiles opens images that are files or devices, and describes them to qemu-img.
type hostFiles struct{ openfile.Files }

func (s Storage) files() hostFiles { return hostFiles{s.Files} }

func (s hostFiles) qemuImage(img hv.Image) qemuimg.Image {
	return qemuimg.Image{Path: img.Path, Format: img.Format, SliceBytes: img.SliceBytes, LUKS: img.LUKSSecret != "", Files: s.Files}
}

// qcow2At returns the qcow2 image at path, without backing images.
func (s hostFiles) qcow2At(path string) qemuimg.Image {
	return s.qemuImage(hv.Image{Path: path, Format: string(api.FormatQcow2)})
}

// qemuChain converts a chain, top first, to an image with its backing images.
func (s hostFiles) qemuChain(chain []hv.Image) *qemuimg.Image {
	var img *qemuimg.Image
	for _, layer := range slices.Backward(chain) {
		top := s.qemuImage(layer)
		top.Backing = img
		img = &top
	}
	return img
}
