// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"fmt"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// Domain is the content of a domain's XML.
type Domain struct {
	Name      string
	Active    bool  // the XML describes a process
	Run       int   // of that process
	Memory    int64 // in bytes
	IOThreads bool
	Disks     []hv.Disk
}

// ParseDomain parses the XML of a domain. If known lacks a disk's pool volume, the image has type
// volume and no path. If clusters lacks the cluster of an RBD image, the image has no path.
func ParseDomain(doc string, known PoolSources, clusters rbd.Clusters) (*Domain, error) {
	var dom libvirtxml.Domain
	if err := dom.Unmarshal(doc); err != nil {
		return nil, fmt.Errorf("parse domain XML: %w", err)
	}
	known.resolve(&dom)
	p := &Domain{Name: dom.Name, Active: dom.ID != nil, Disks: []hv.Disk{}}
	if dom.ID != nil {
		p.Run = *dom.ID
	}
	if dom.Memory != nil {
		p.Memory = int64(dom.Memory.Value) << 10 // libvirt writes KiB, whatever it read
	}
	p.IOThreads = dom.IOThreads > 0 || dom.IOThreadIDs != nil && len(dom.IOThreadIDs.IOThreads) > 0
	if dom.Devices == nil {
		return p, nil
	}
	for i := range dom.Devices.Disks {
		p.Disks = append(p.Disks, diskOf(&dom.Devices.Disks[i], clusters))
	}
	return p, nil
}

// ParseDisk parses the <disk> of a definition.
func ParseDisk(definition string, clusters rbd.Clusters) (hv.Disk, error) {
	var x libvirtxml.DomainDisk
	if err := x.Unmarshal(definition); err != nil {
		return hv.Disk{}, fmt.Errorf("parse disk XML: %w", err)
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(definition); err != nil || doc.Root() == nil {
		return hv.Disk{}, fmt.Errorf("parse disk XML: %w", err)
	}
	d := diskOf(&x, clusters)
	d.Uncarried = uncarried(doc.Root()) // from the text, which has more than x
	return d, nil
}

func diskOf(x *libvirtxml.DomainDisk, clusters rbd.Clusters) hv.Disk {
	moveAuth(x)
	d := hv.Disk{
		Device:    x.Device,
		Serial:    x.Serial,
		Address:   addressOf(x.Address),
		ReadOnly:  x.ReadOnly != nil,
		Shareable: x.Shareable != nil,
		Transient: x.Transient != nil,
		Encrypted: x.Encryption != nil,
	}
	if d.Device == "" {
		d.Device = "disk" // libvirt's default
	}
	if x.Target != nil {
		d.Target, d.Bus = x.Target.Dev, x.Target.Bus
	}
	if x.Boot != nil {
		d.BootOrder = int(x.Boot.Order)
	}
	format := ""
	if x.Driver != nil {
		format = x.Driver.Type
		d.CopyOnRead = x.Driver.CopyOnRead == "on"
		d.Cache = x.Driver.Cache
		d.Discard = x.Driver.Discard
		d.DiscardNoUnref = x.Driver.DiscardNoUnref == "on"
		d.ErrorPolicy = x.Driver.ErrorPolicy
	}
	if x.IOTune != nil {
		d.ThrottleGroup = x.IOTune.GroupName
	}
	if addLayer(&d, x.Source, format, clusters) {
		addBacking(&d, x.BackingStore, clusters)
	}
	d.Mirror = mirrorOf(x.Mirror, clusters)
	d.Uncarried, d.ImageSetting = peculiarTo(x)
	if x.Source != nil {
		d.StartupPolicy = x.Source.StartupPolicy
	}
	return d
}

func addLayer(d *hv.Disk, src *libvirtxml.DomainDiskSource, format string, clusters rbd.Clusters) bool {
	img, ok := imageOf(src, format, clusters)
	if !ok {
		return false
	}
	d.Slices = d.Slices || src.Slices != nil && img.SliceBytes == 0
	d.Chain = append(d.Chain, img)
	d.Encrypted = d.Encrypted || src.Encryption != nil && img.LUKSSecret == ""
	return true
}

// addBacking adds the layers below the top. An empty <backingStore/> ends the chain; without it
// libvirt would probe the last image.
func addBacking(d *hv.Disk, b *libvirtxml.DomainDiskBackingStore, clusters rbd.Clusters) {
	for ; b != nil; b = b.BackingStore {
		if !addLayer(d, b.Source, formatOf(b.Format), clusters) {
			d.Terminated = true
			return
		}
	}
}

func mirrorOf(x *libvirtxml.DomainDiskMirror, clusters rbd.Clusters) *hv.Mirror {
	if x == nil {
		return nil
	}
	m := &hv.Mirror{Job: hv.JobOther, Ready: x.Ready == "yes", Ending: x.Ready == "pivot" || x.Ready == "abort"}
	switch x.Job {
	case "copy":
		m.Job = hv.JobCopy
	case "active-commit":
		m.Job = hv.JobActiveCommit
	}
	m.Image, _ = imageOf(x.Source, formatOf(x.Format), clusters)
	return m
}

func formatOf(f *libvirtxml.DomainDiskFormat) string {
	if f == nil {
		return ""
	}
	return f.Type
}

func imageOf(src *libvirtxml.DomainDiskSource, format string, clusters rbd.Clusters) (hv.Image, bool) {
	img := hv.Image{Format: format}
	switch {
	case src == nil:
		return img, false
	case src.File != nil:
		img.Type, img.Path, img.SliceBytes, img.LUKSSecret = hv.SourceFile, src.File.File, sliceOf(src, format), luksSecretOf(src)
		return img, img.Path != ""
	case src.Block != nil:
		img.Type, img.Path, img.SliceBytes, img.LUKSSecret = hv.SourceBlock, src.Block.Dev, sliceOf(src, format), luksSecretOf(src)
		return img, img.Path != ""
	case src.Volume != nil:
		img.Type = "volume"
	case src.Network != nil:
		img.Type, img.Path, img.SliceBytes = hv.SourceNetwork, addressOfSource(src, clusters), sliceOf(src, format)
	case src.NVME != nil:
		img.Type = "nvme"
	case src.Dir != nil:
		img.Type = "dir"
	case src.VHostUser != nil:
		img.Type = "vhostuser"
	case src.VHostVDPA != nil:
		img.Type = "vhostvdpa"
	case src.Ctl != nil:
		img.Type = "ctl"
	default:
		return img, false
	}
	return img, true
}

// addressOf returns a device address as text, which is equal for equal places in the guest.
func addressOf(a *libvirtxml.DomainAddress) string {
	switch {
	case a == nil:
		return ""
	case a.PCI != nil:
		return fmt.Sprintf("pci:%04x:%02x:%02x.%x",
			number(a.PCI.Domain), number(a.PCI.Bus), number(a.PCI.Slot), number(a.PCI.Function))
	case a.Drive != nil:
		return fmt.Sprintf("drive:%d:%d:%d:%d",
			number(a.Drive.Controller), number(a.Drive.Bus), number(a.Drive.Target), number(a.Drive.Unit))
	case a.USB != nil:
		return fmt.Sprintf("usb:%d:%s", number(a.USB.Bus), a.USB.Port)
	case a.CCW != nil:
		return fmt.Sprintf("ccw:%x.%x.%04x", number(a.CCW.CSSID), number(a.CCW.SSID), number(a.CCW.DevNo))
	case a.VirtioMMIO != nil:
		return "virtio-mmio"
	}
	return "other"
}

func number(n *uint) uint {
	if n == nil {
		return 0
	}
	return *n
}
