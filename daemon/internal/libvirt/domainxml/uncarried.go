// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"
	"slices"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"
)

// Most of a <disk> is about the disk and stays when another image is put into it. What
// stands in its <source> is about the image: how to open it. Whoever dropped that would
// hand the guest something else than its disk, ciphertext for instance. So what may
// stand there is listed, and everything else has a name here.

// sourceAttributes may stand in the <source> of a disk: which image it is, and what the
// host does at a start without it.
var sourceAttributes = []string{"file", "dev", "pool", "volume", "index", "startupPolicy"}

// uncarried names what of a <disk> would be lost with its images, "" if nothing would.
func uncarried(disk *etree.Element) string {
	for _, tag := range []string{"encryption", "auth"} { // where libvirt once had them
		for _, el := range disk.SelectElements(tag) {
			if source := disk.SelectElement("source"); isCephAuth(el) && isRBD(source) && source.SelectElement("auth") == nil {
				continue
			}
			return "<" + tag + ">"
		}
	}
	for _, source := range append(disk.SelectElements("source"), disk.FindElements("backingStore//source")...) {
		if what := uncarriedIn(source); what != "" {
			return what + " in its <source>"
		}
	}
	return ""
}

func uncarriedIn(source *etree.Element) string {
	export, image := isExport(source), isRBD(source)
	for _, attr := range source.Attr {
		if attr.Space != "" || !slices.Contains(sourceAttributes, attr.Key) && (!export || !slices.Contains(exportAttributes, attr.Key)) && (!image || !slices.Contains(rbdAttributes, attr.Key)) {
			return attr.FullKey() + "="
		}
	}
	for _, child := range source.ChildElements() {
		if !keepsOwner(child) && !isBeginning(child) && !isLUKS(child) && (!export && !image || child.FullTag() != "host") && (!image || !isCephAuth(child)) {
			return "<" + child.FullTag() + ">"
		}
	}
	return ""
}

// keepsOwner reports whether an element is the <seclabel> that tells libvirt to leave the
// image's owner and label alone. One with a label of its own says more.
func keepsOwner(el *etree.Element) bool {
	return el.FullTag() == "seclabel" && el.SelectAttrValue("relabel", "") == "no" && len(el.ChildElements()) == 0
}

// peculiarTo returns what hv.Disk has of a disk as Uncarried and as ImageSetting.
func peculiarTo(x *libvirtxml.DomainDisk) (lost, setting string) {
	switch {
	case x.Driver != nil && x.Driver.MetadataCache != nil:
		setting = "<metadata_cache>"
	case len(labelsOf(x.Source)) > 0:
		setting = "<seclabel> in its <source>"
	}
	if isPlain(x) {
		return "", setting
	}
	text, err := x.Marshal()
	doc := etree.NewDocument()
	if err == nil {
		err = doc.ReadFromString(text)
	}
	if err != nil || doc.Root() == nil {
		return fmt.Sprintf("something unreadable (%v)", err), setting
	}
	return uncarried(doc.Root()), setting
}

// isPlain reports whether nothing but paths stands in the sources of a disk, so
// that there is no need to look closer. Sources that are no file and no device are
// no volume's, and not looked at.
func isPlain(x *libvirtxml.DomainDisk) bool {
	if x.Encryption != nil || x.Auth != nil || !isPlainSource(x.Source) {
		return false
	}
	for b := x.BackingStore; b != nil; b = b.BackingStore {
		if !isPlainSource(b.Source) {
			return false
		}
	}
	return true
}

func isPlainSource(src *libvirtxml.DomainDiskSource) bool {
	if src == nil || (src.File == nil && src.Block == nil && src.Volume == nil && exportOf(src) == "") {
		return true
	}
	return len(labelsOf(src)) == 0 && (src.File == nil || src.File.FDGroup == "") && (src.Volume == nil || src.Volume.Mode == "") &&
		src.Encryption == nil && src.Reservations == nil && src.Slices == nil && src.SSL == nil &&
		src.Cookies == nil && src.Readahead == nil && src.Timeout == nil && src.DataStore == nil
}

func labelsOf(src *libvirtxml.DomainDiskSource) []libvirtxml.DomainDeviceSecLabel {
	switch {
	case src == nil:
	case src.File != nil:
		return src.File.SecLabel
	case src.Block != nil:
		return src.Block.SecLabel
	case src.Volume != nil:
		return src.Volume.SecLabel
	}
	return nil
}
