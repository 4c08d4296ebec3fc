// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// storageSlice is libvirt's type of a slice of what is at the path of a source, below its
// format.
const storageSlice = "storage"

// slicesOf is what makes an image of the beginning of a larger one, nil if img is all of it.
func slicesOf(img hv.Image) *libvirtxml.DomainDiskSlices {
	if img.SliceBytes == 0 {
		return nil
	}
	return &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{{Type: storageSlice, Size: uint(img.SliceBytes)}}}
}

// sliceOf reads it: 0 if the source has no slice, or one that hv.Image cannot say.
func sliceOf(src *libvirtxml.DomainDiskSource, format string) int64 {
	if src.Slices == nil || len(src.Slices.Slices) != 1 || format != "raw" {
		return 0
	}
	if slice := src.Slices.Slices[0]; slice.Type == storageSlice && slice.Offset == 0 {
		return int64(slice.Size)
	}
	return 0
}

// isBeginning reports whether a <slices> element says no more than hv.Image does of a raw image.
func isBeginning(el *etree.Element) bool {
	children := el.ChildElements()
	if el.FullTag() != "slices" || len(children) != 1 || len(children[0].ChildElements()) > 0 {
		return false
	}
	slice := children[0]
	return slice.FullTag() == "slice" && len(slice.Attr) == 3 && slice.SelectAttrValue("type", "") == storageSlice &&
		slice.SelectAttrValue("offset", "") == "0" && slice.SelectAttrValue("size", "") != ""
}
