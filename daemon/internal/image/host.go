// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
)

// host works on files and block devices of this host.
type host struct {
	openfile.Files
	privileged sandbox.Privileged
}

func (s Storage) host() host { return host{s.Files, s.Privileged} }

func (h host) qemuImage(img hv.Image) qemuimg.Image {
	return qemuimg.Image{Path: img.Path, Format: img.Format, SliceBytes: img.SliceBytes, LUKS: img.LUKSSecret != "", Files: h.Files}
}

func (h host) qcow2At(path string) qemuimg.Image {
	return h.qemuImage(hv.Image{Path: path, Format: string(api.FormatQcow2)})
}

func (h host) qemuChain(chain []hv.Image) *qemuimg.Image {
	var img *qemuimg.Image
	for _, layer := range slices.Backward(chain) {
		top := h.qemuImage(layer)
		top.Backing = img
		img = &top
	}
	return img
}
