// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"
	"slices"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"
)

// The <source> of a disk defines how to open the image: without one of these settings the guest
// could see different content, ciphertext for instance. So the permitted settings are listed, and
// every other setting is reported by name. Another image changes nothing else in a <disk>.

// sourceAttributes are permitted in the <source> of a disk: they identify the image, or permit a
// start without the image.
var sourceAttributes = []string{"file", "dev", "pool", "volume", "index", "startupPolicy"}

// uncarried names a setting of a <disk> that would be lost if the disk's images were replaced, or
// "".
func uncarried(disk *etree.Element) string {
	for _, tag := range []string{"encryption", "auth"} { // older libvirt had them here
		for _, el := range disk.SelectElements(tag) {
			if source := disk.SelectElement("source"); isCephAuth(el) && source != nil && (rbdProtocol{}).has(source) && source.SelectElement("auth") == nil {
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
	p := protocolIn(source)
	for _, attr := range source.Attr {
		if attr.Space != "" || !slices.Contains(sourceAttributes, attr.Key) && (p == nil || !slices.Contains(networkAttributes, attr.Key)) {
			return attr.FullKey() + "="
		}
	}
	for _, child := range source.ChildElements() {
		if !keepsOwner(child) && !isBeginning(child) && !isLUKS(child) && (p == nil || !p.keeps(child)) {
			return "<" + child.FullTag() + ">"
		}
	}
	return ""
}

// keepsOwner reports whether an element is a <seclabel> without a label, which tells libvirt not
// to change the image's owner and label.
func keepsOwner(el *etree.Element) bool {
	return el.FullTag() == "seclabel" && el.SelectAttrValue("relabel", "") == "no" && len(el.ChildElements()) == 0
}

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

// isPlain reports whether the sources of a disk have only paths. It checks files, devices, pool
// volumes and NBD exports. An RBD image with other settings has no address, and no volume has
// another kind of source.
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
	if src == nil || (src.File == nil && src.Block == nil && src.Volume == nil && nbdProtocol{}.address(src, nil) == "") {
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
