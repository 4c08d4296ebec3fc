// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// SetConfigChain rewrites the images of one disk of the persistent definition.
// The whole <disk> goes to libvirt, which replaces the old one in one step; it
// is edited as text, so that elements unknown to any Go type stay as they are.
func (c *Conn) SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	if err := c.setConfigChain(ctx, id, target, chain); err != nil {
		return fmt.Errorf("set persistent chain of disk %s of domain %s: %w", target, id, err)
	}
	return nil
}

func (c *Conn) setConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	s, err := c.windows()
	if err != nil {
		return err
	}
	dom, err := c.lookup(ctx, s, id)
	if err != nil {
		return err
	}
	doc, err := c.configXML(ctx, s, dom)
	if err != nil {
		return err
	}
	if same, err := hasConfigChain(doc, target, chain); err != nil || same {
		c.library.note(keptDefinitions, nil) // whoever has made it so
		return err
	}
	edited, err := rechain(doc, target, chain)
	if err != nil {
		return err
	}
	// See change: a call that is left takes effect all the same.
	_, err = changing(context.WithoutCancel(ctx), c, s, c.callTimeout, keptDefinitions, func(lv *golibvirt.Libvirt) (none, error) {
		return none{}, lv.DomainUpdateDeviceFlags(dom, edited, golibvirt.DomainDeviceModifyConfig)
	})
	if err != nil {
		return err
	}
	if doc, err = c.configXML(ctx, s, dom); err != nil {
		return err
	}
	same, err := hasConfigChain(doc, target, chain)
	if err == nil && !same {
		err = errors.New("libvirt accepted the change and does not show it")
	}
	return err
}

// hasConfigChain says whether the disk in a definition has exactly this chain,
// with its end stated.
func hasConfigChain(doc, target string, chain []hv.Image) (bool, error) {
	p, err := parseDomain(doc, nil)
	if err != nil {
		return false, err
	}
	d := (&hv.Domain{Config: p.disks}).ConfigDisk(target)
	if d == nil {
		return false, fmt.Errorf("%w: no such disk", hv.ErrNotFound)
	}
	return d.Terminated && slices.Equal(d.Chain, chain), nil
}

// rechain returns the <disk> of a domain's XML with its images replaced.
func rechain(domainXML, target string, chain []hv.Image) (string, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(domainXML); err != nil {
		return "", fmt.Errorf("parse domain XML: %w", err)
	}
	disk := findDiskElement(doc, target)
	if disk == nil {
		return "", fmt.Errorf("%w: no such disk", hv.ErrNotFound)
	}
	if err := setChain(disk, chain); err != nil {
		return "", err
	}
	return textOf(disk)
}

// setChain replaces the images of a <disk>.
func setChain(disk *etree.Element, chain []hv.Image) error {
	if len(chain) == 0 {
		return errors.New("the chain is empty")
	}
	for _, img := range chain {
		if _, err := sourceAttr(img); err != nil {
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
	setSource(source, top)
	removeAll(disk, "backingStore")
	disk.InsertChildAt(source.Index()+1, backingElement(chain[1:]))
	return nil
}

// backingElement writes the layers below the top, down to the empty element
// that says that there are no more.
func backingElement(layers []hv.Image) *etree.Element {
	el := etree.NewElement("backingStore")
	if len(layers) == 0 {
		return el
	}
	el.CreateAttr("type", layers[0].Type)
	el.CreateElement("format").CreateAttr("type", layers[0].Format)
	setSource(el.CreateElement("source"), layers[0])
	el.AddChild(backingElement(layers[1:]))
	return el
}

// setSource points a <source> at img. Other attributes and children of it,
// such as startupPolicy and <seclabel>, say how to open a source rather than
// which, and stay; index numbers the old image.
func setSource(source *etree.Element, img hv.Image) {
	for _, attr := range []string{"file", "dev", "pool", "volume", "index"} {
		source.RemoveAttr(attr)
	}
	attr, _ := sourceAttr(img) // checked by setChain
	source.CreateAttr(attr, img.Path)
	removeAll(source, "slices")
	if img.SliceBytes != 0 {
		slice := source.CreateElement("slices").CreateElement("slice")
		slice.CreateAttr("type", storageSlice)
		slice.CreateAttr("offset", "0")
		slice.CreateAttr("size", strconv.FormatInt(img.SliceBytes, 10))
	}
}

// sourceAttr names the attribute of <source> that holds the path of img.
func sourceAttr(img hv.Image) (string, error) {
	if img.Path == "" || img.Format == "" {
		return "", fmt.Errorf("%w: image needs a path and a format: %+v", hv.ErrUnsupported, img)
	}
	if img.SliceBytes != 0 && img.Format != "raw" {
		return "", fmt.Errorf("%w: a slice of a %s image", hv.ErrUnsupported, img.Format)
	}
	switch img.Type {
	case hv.SourceFile:
		return "file", nil
	case hv.SourceBlock:
		return "dev", nil
	}
	return "", fmt.Errorf("%w: image of type %q", hv.ErrUnsupported, img.Type)
}
