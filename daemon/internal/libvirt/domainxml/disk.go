// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// DiskXML returns the <disk> for a spec. clusters are the Ceph clusters of this host.
func DiskXML(spec hv.DiskSpec, clusters rbd.Clusters) (string, error) {
	doc, err := spec.Definition, error(nil)
	switch {
	case doc != "":
	case spec.Slot != "":
		doc, err = slotXML(spec, clusters)
	default:
		doc, err = newDiskXML(spec, clusters)
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

// slotXML returns the <disk> of a slot with another image. It edits the XML as text, because the
// types of libvirtxml lose elements that they do not know.
func slotXML(spec hv.DiskSpec, clusters rbd.Clusters) (string, error) {
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
	if err := SetChain(disk, spec.Chain(), clusters); err != nil {
		return "", err
	}
	if spec.Image.Format != "qcow2" {
		removeAll(disk.SelectElement("driver"), "metadata_cache") // libvirt accepts it for no other format
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
	return TextOf(disk)
}

// newDiskXML describes a new disk. Format and end of the chain are explicit: libvirt would
// otherwise probe content that a guest wrote.
func newDiskXML(spec hv.DiskSpec, clusters rbd.Clusters) (string, error) {
	if spec.Image.LUKSSecret != "" {
		return "", fmt.Errorf("%w: %s is encrypted by QEMU (LUKS)", hv.ErrUnsupported, spec.Image.Path)
	}
	source, err := sourceOf(spec.Image, clusters)
	if err == nil {
		err = checkShared(spec)
	}
	if err != nil {
		return "", err
	}
	disk := libvirtxml.DomainDisk{
		Device:       "disk",
		Driver:       &libvirtxml.DomainDiskDriver{Name: "qemu", Type: spec.Image.Format, Cache: "none"},
		Source:       source,
		BackingStore: &libvirtxml.DomainDiskBackingStore{},
		Target:       &libvirtxml.DomainDiskTarget{Dev: spec.Target, Bus: spec.Bus},
		Serial:       spec.Serial,
	}
	if spec.ReadOnly {
		disk.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	} else {
		disk.Driver.Discard = "unmap"
	}
	if spec.Shareable {
		disk.Shareable = &libvirtxml.DomainDiskShareable{}
	}
	if spec.BootOrder > 0 {
		disk.Boot = &libvirtxml.DomainDeviceBoot{Order: uint(spec.BootOrder)}
	}
	text, err := disk.Marshal()
	if err != nil {
		return "", fmt.Errorf("write disk XML: %w", err)
	}
	if len(spec.Backing) == 0 {
		return text, nil
	}
	return withChain(text, spec.Chain(), clusters)
}

// checkShared refuses a shareable image that is not raw: libvirt would refuse it when the guest
// starts.
func checkShared(spec hv.DiskSpec) error {
	if spec.Shareable && spec.Image.Format != "raw" {
		return fmt.Errorf("%w: a %s image cannot be shared", hv.ErrUnsupported, spec.Image.Format)
	}
	return nil
}

func targetOf(diskXML string) (string, error) {
	var disk libvirtxml.DomainDisk
	if err := disk.Unmarshal(diskXML); err != nil {
		return "", fmt.Errorf("parse disk XML: %w", err)
	}
	if disk.Target == nil {
		return "", nil
	}
	return disk.Target.Dev, nil
}
