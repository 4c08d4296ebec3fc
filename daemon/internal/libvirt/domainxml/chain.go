// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// HasConfigChain reports whether the disk in a definition has exactly this chain, with an explicit
// end.
func HasConfigChain(doc, target string, chain []hv.Image, clusters rbd.Clusters) (bool, error) {
	p, err := ParseDomain(doc, nil, clusters)
	if err != nil {
		return false, err
	}
	d := (&hv.Domain{Config: p.Disks}).ConfigDisk(target)
	if d == nil {
		return false, fmt.Errorf("%w: no such disk", hv.ErrNotFound)
	}
	return d.Terminated && slices.Equal(d.Chain, chain), nil
}

// Rechain returns the <disk> of a domain's XML with its images replaced.
func Rechain(domainXML, target string, chain []hv.Image, clusters rbd.Clusters) (string, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(domainXML); err != nil {
		return "", fmt.Errorf("parse domain XML: %w", err)
	}
	disk := FindDisk(doc, target)
	if disk == nil {
		return "", fmt.Errorf("%w: no such disk", hv.ErrNotFound)
	}
	if err := SetChain(disk, chain, clusters); err != nil {
		return "", err
	}
	return TextOf(disk)
}

// SetChain replaces the images of a <disk>.
func SetChain(disk *etree.Element, chain []hv.Image, clusters rbd.Clusters) error {
	if len(chain) == 0 {
		return errors.New("the chain is empty")
	}
	for _, img := range chain {
		if _, err := sourceAttr(img, clusters); err != nil {
			return err
		}
	}
	top := chain[0]
	disk.CreateAttr("type", top.Type)
	driver := disk.SelectElement("driver")
	if driver == nil {
		driver = disk.CreateElement("driver")
		driver.CreateAttr("name", "qemu")
	}
	driver.CreateAttr("type", top.Format)

	source := disk.SelectElement("source")
	if source == nil {
		source = disk.CreateElement("source")
	}
	setSource(source, top, clusters)
	removeAll(disk, "auth") // older libvirt put the <auth> of the source here
	removeAll(disk, "backingStore")
	disk.InsertChildAt(source.Index()+1, backingElement(chain[1:], clusters))
	return nil
}

func withChain(diskXML string, chain []hv.Image, clusters rbd.Clusters) (string, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(diskXML); err != nil {
		return "", fmt.Errorf("parse disk XML: %w", err)
	}
	if err := SetChain(doc.Root(), chain, clusters); err != nil {
		return "", err
	}
	return TextOf(doc.Root())
}

// backingElement returns the layers below the top, down to the empty element that ends the chain.
func backingElement(layers []hv.Image, clusters rbd.Clusters) *etree.Element {
	el := etree.NewElement("backingStore")
	if len(layers) == 0 {
		return el
	}
	el.CreateAttr("type", layers[0].Type)
	el.CreateElement("format").CreateAttr("type", layers[0].Format)
	setSource(el.CreateElement("source"), layers[0], clusters)
	el.AddChild(backingElement(layers[1:], clusters))
	return el
}

// setSource makes a <source> name img. It removes the attribute index, which numbers the old
// image. Attributes and children such as startupPolicy and <seclabel> stay, since they do not
// identify an image.
func setSource(source *etree.Element, img hv.Image, clusters rbd.Clusters) {
	for _, attr := range []string{"file", "dev", "pool", "volume", "index", "protocol", "name", "tls"} {
		source.RemoveAttr(attr)
	}
	removeAll(source, "host")
	removeAll(source, "auth")
	if img.Type == hv.SourceNetwork {
		protocolAt(img.Path).set(source, img.Path, clusters)
	} else {
		attr, _ := sourceAttr(img, clusters) // checked by SetChain
		source.CreateAttr(attr, img.Path)
	}
	removeAll(source, "slices")
	removeAll(source, "encryption")
	if img.LUKSSecret != "" {
		setLUKS(source, img.LUKSSecret)
	}
	if img.SliceBytes != 0 {
		slice := source.CreateElement("slices").CreateElement("slice")
		slice.CreateAttr("type", storageSlice)
		slice.CreateAttr("offset", "0")
		slice.CreateAttr("size", strconv.FormatInt(img.SliceBytes, 10))
	}
}

func sourceAttr(img hv.Image, clusters rbd.Clusters) (string, error) {
	if img.Path == "" || img.Format == "" {
		return "", fmt.Errorf("%w: image needs a path and a format: %+v", hv.ErrUnsupported, img)
	}
	if img.SliceBytes != 0 && img.Format != "raw" {
		return "", fmt.Errorf("%w: a slice of a %s image", hv.ErrUnsupported, img.Format)
	}
	if img.LUKSSecret != "" && (img.SliceBytes != 0 || img.Type == hv.SourceNetwork) {
		return "", fmt.Errorf("%w: a LUKS container that is not all of a file or device", hv.ErrUnsupported)
	}
	switch img.Type {
	case hv.SourceFile:
		return "file", nil
	case hv.SourceBlock:
		return "dev", nil
	case hv.SourceNetwork:
		if err := protocolAt(img.Path).check(img.Path, clusters); err != nil {
			return "", fmt.Errorf("%w: %w", hv.ErrUnsupported, err)
		}
		return "protocol", nil
	}
	return "", fmt.Errorf("%w: image of type %q", hv.ErrUnsupported, img.Type)
}
