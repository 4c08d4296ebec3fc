// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// storageSlice is libvirt's type of a slice of the file or device itself, below the image's
// format.
const storageSlice = "storage"

func slicesOf(img hv.Image) *libvirtxml.DomainDiskSlices {
	if img.SliceBytes == 0 {
		return nil
	}
	return &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{{Type: storageSlice, Size: uint(img.SliceBytes)}}}
}

// sliceOf returns the size of a source's slice, 0 if there is none or hv.Image cannot express it.
func sliceOf(src *libvirtxml.DomainDiskSource, format string) int64 {
	if src.Slices == nil || len(src.Slices.Slices) != 1 || format != "raw" {
		return 0
	}
	if slice := src.Slices.Slices[0]; slice.Type == storageSlice && slice.Offset == 0 {
		return int64(slice.Size)
	}
	return 0
}

func isBeginning(el *etree.Element) bool {
	children := el.ChildElements()
	if el.FullTag() != "slices" || len(children) != 1 || len(children[0].ChildElements()) > 0 {
		return false
	}
	slice := children[0]
	return slice.FullTag() == "slice" && len(slice.Attr) == 3 && slice.SelectAttrValue("type", "") == storageSlice &&
		slice.SelectAttrValue("offset", "") == "0" && slice.SelectAttrValue("size", "") != ""
}
