// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

type hostFiles struct{ openfile.Files }

func (s Storage) files() hostFiles { return hostFiles{s.Files} }

func (s hostFiles) qemuImage(img hv.Image) qemuimg.Image {
	return qemuimg.Image{Path: img.Path, Format: img.Format, SliceBytes: img.SliceBytes, LUKS: img.LUKSSecret != "", Files: s.Files}
}

func (s hostFiles) qcow2At(path string) qemuimg.Image {
	return s.qemuImage(hv.Image{Path: path, Format: string(api.FormatQcow2)})
}

func (s hostFiles) qemuChain(chain []hv.Image) *qemuimg.Image {
	var img *qemuimg.Image
	for _, layer := range slices.Backward(chain) {
		top := s.qemuImage(layer)
		top.Backing = img
		img = &top
	}
	return img
}
