// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"fmt"
	"slices"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// LocalDefinition is a definition from any host, adapted to this host.
type LocalDefinition struct {
	Doc   string
	Name  string
	NVRAM string
}

// Localize adapts a definition of the domain with this id, from another host, to this host and
// these disks. It refuses a definition that depends on the other host.
func Localize(id string, def hv.DomainDefinition, disks []hv.DiskSpec, clusters rbd.Clusters) (*LocalDefinition, error) {
	doc, err := ParseDoc(def.Domain)
	if err != nil {
		return nil, err
	}
	if err := checkPlain(doc); err != nil {
		return nil, err
	}
	domain := doc.Root()
	if got := TextIn(domain, "uuid"); got != id {
		return nil, fmt.Errorf("the definition is of domain %q", got)
	}
	if err := setDisks(domain, disks, clusters); err != nil {
		return nil, err
	}
	if err := CheckPortable(domain); err != nil {
		return nil, err
	}
	// Another host must not choose the program that runs here, and its path differs between
	// distributions.
	removeAll(domain.FindElement("devices"), "emulator")
	n := &LocalDefinition{Name: TextIn(domain, "name")}
	if n.NVRAM, err = setNVRAM(domain, id); err != nil {
		return nil, err
	}
	if n.NVRAM == "" && def.NVRAM != nil {
		return nil, fmt.Errorf("%w: there is NVRAM, and the definition has no place for it", hv.ErrUnsupported)
	}
	if n.Doc, err = doc.WriteToString(); err != nil {
		return nil, fmt.Errorf("write domain XML: %w", err)
	}
	return n, nil
}

// CheckDefined compares libvirt's dump of the new definition with the checked definition: the dump
// must pass CheckPortable, and name the same images.
func (n *LocalDefinition) CheckDefined(dump string) error {
	got, err := ParseDoc(dump)
	if err != nil {
		return err
	}
	if err := CheckPortable(got.Root()); err != nil {
		return err
	}
	meant, err := ParseDoc(n.Doc)
	if err != nil {
		return err
	}
	if want, is := imagesIn(meant.Root()), imagesIn(got.Root()); !slices.Equal(want, is) {
		return LeansOn("the images %q, and %q were meant", is, want)
	}
	if _, file, err := NVRAMElement(got.Root()); err != nil || n.NVRAM != "" && file != NVRAMHome+n.NVRAM {
		return errors.Join(LeansOn("the NVRAM %q", file), err)
	}
	return nil
}

func imagesIn(domain *etree.Element) []string {
	var images []string
	for _, disk := range domain.FindElements("devices/disk") {
		if isDrive(disk) {
			continue
		}
		for _, source := range slices.Concat(disk.FindElements(".//source"), disk.FindElements(".//source/host"), disk.FindElements(".//mirror")) {
			for _, attr := range source.Attr {
				if attr.Key != "index" && attr.Key != "startupPolicy" && (attr.Key != "tls" || attr.Value != noTLS) {
					images = append(images, targetIn(disk)+" "+attr.Key+"="+attr.Value)
				}
			}
		}
	}
	slices.Sort(images)
	return images
}

// setDisks replaces all disks except the drives (CD-ROM, floppy), and puts the new disks before
// the drives. If two disks have one address, it removes the address of the second, and libvirt
// chooses another. The guest has never seen that disk: it was attached while the guest had no root
// disk and could not start.
func setDisks(domain *etree.Element, specs []hv.DiskSpec, clusters rbd.Clusters) error {
	devices := domain.SelectElement("devices")
	if devices == nil {
		devices = domain.CreateElement("devices")
	}
	for _, disk := range devices.SelectElements("disk") {
		if !isDrive(disk) {
			devices.RemoveChild(disk)
		}
	}
	at := len(devices.Child)
	if drive := devices.SelectElement("disk"); drive != nil {
		at = drive.Index()
	}
	taken := map[string]bool{}
	for n, spec := range specs {
		text, err := DiskXML(spec, clusters)
		if err != nil {
			return fmt.Errorf("disk %s: %w", spec.Target, err)
		}
		disk := etree.NewDocument()
		if err := disk.ReadFromString(text); err != nil {
			return fmt.Errorf("parse disk XML: %w", err)
		}
		if err := checkPlain(disk); err != nil {
			return err
		}
		if err := leaveTaken(disk.Root(), taken); err != nil {
			return err
		}
		devices.InsertChildAt(at+n, disk.Root().Copy())
	}
	if domain.FindElement("devices/*/boot") != nil && domain.FindElement("os/boot") != nil {
		return dropOwnBoot(domain)
	}
	return nil
}

func leaveTaken(disk *etree.Element, taken map[string]bool) error {
	address := disk.SelectElement("address")
	if address == nil {
		return nil
	}
	place, err := TextOf(address)
	if err != nil {
		return err
	}
	if taken[place] {
		disk.RemoveChild(address)
	}
	taken[place] = true
	return nil
}
