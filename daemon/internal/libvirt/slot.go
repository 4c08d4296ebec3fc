// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// diskDoc is the <disk> that a spec asks for.
func diskDoc(spec hv.DiskSpec) (string, error) {
	doc, err := spec.Definition, error(nil)
	switch {
	case doc != "":
	case spec.Slot != "":
		doc, err = slotXML(spec)
	default:
		doc, err = diskXML(spec)
	}
	if err != nil {
		return "", err
	}
	target, err := targetOf(doc)
	if err == nil && target != spec.Target {
		err = fmt.Errorf("the definition is of disk %q, not of %s", target, spec.Target)
	}
	return doc, err
}

// slotXML puts another image into the place that a disk had. It is edited as text,
// so that elements unknown to any Go type stay as they are.
func slotXML(spec hv.DiskSpec) (string, error) {
	if err := checkShared(spec); err != nil {
		return "", err
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(spec.Slot); err != nil {
		return "", fmt.Errorf("parse disk XML: %w", err)
	}
	if err := checkPlain(doc); err != nil {
		return "", err
	}
	disk := doc.Root()
	if disk == nil || disk.FullTag() != "disk" {
		return "", fmt.Errorf("the slot of %s is no <disk>", spec.Target)
	}
	if what := uncarried(disk); what != "" {
		return "", fmt.Errorf("%w: disk %s has %s, which cannot be given to another image", hv.ErrUnsupported, spec.Target, what)
	}
	target := disk.SelectElement("target")
	if target == nil {
		return "", fmt.Errorf("the slot of %s has no <target>", spec.Target)
	}
	target.CreateAttr("dev", spec.Target)
	removeAll(disk, "mirror")
	if spec.NewAddress {
		removeAll(disk, "address")
	}
	if spec.NoBootOrder {
		removeAll(disk, "boot")
	}
	if err := setChain(disk, spec.Chain()); err != nil {
		return "", err
	}
	if spec.Image.Format != "qcow2" {
		removeAll(disk.SelectElement("driver"), "metadata_cache") // which libvirt takes of no other format
	}
	setFlag(disk, "readonly", spec.ReadOnly)
	setFlag(disk, "shareable", spec.Shareable)
	if spec.Shareable {
		disk.SelectElement("driver").CreateAttr("cache", "none")
	}
	if spec.Serial != "" {
		removeAll(disk, "serial")
		disk.CreateElement("serial").SetText(spec.Serial)
	}
	if err := checkDisk(disk); err != nil {
		return "", err
	}
	return textOf(disk)
}

// setFlag makes an empty element be there, or not.
func setFlag(el *etree.Element, tag string, set bool) {
	removeAll(el, tag)
	if set {
		el.CreateElement(tag)
	}
}

func removeAll(el *etree.Element, tag string) {
	for _, old := range el.SelectElements(tag) {
		el.RemoveChild(old)
	}
}
