// SPDX-License-Identifier: Apache-2.0

// Package domainxml reads and writes the XML of domains: their disks in the nouns of package hv,
// other images and addresses for a disk, and the parts of a definition that may go to another
// host.
package domainxml

import (
	"errors"
	"fmt"

	"github.com/beevik/etree"
)

// ParseDoc parses the XML of a domain.
func ParseDoc(text string) (*etree.Document, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		return nil, fmt.Errorf("parse domain XML: %w", err)
	}
	if doc.Root() == nil || doc.Root().FullTag() != "domain" {
		return nil, errors.New("parse domain XML: it is no <domain>")
	}
	return doc, nil
}

// TextOf writes an element as a separate document.
func TextOf(el *etree.Element) (string, error) {
	out := etree.NewDocument()
	out.SetRoot(el.Copy())
	text, err := out.WriteToString()
	if err != nil {
		return "", fmt.Errorf("write disk XML: %w", err)
	}
	return text, nil
}

// FindDisk returns the <disk> with this target, nil if there is none.
func FindDisk(doc *etree.Document, target string) *etree.Element {
	for _, disk := range doc.FindElements("/domain/devices/disk") {
		if t := disk.SelectElement("target"); t != nil && t.SelectAttrValue("dev", "") == target {
			return disk
		}
	}
	return nil
}

// TextIn returns the text of the first child with this tag, "" if there is none.
func TextIn(el *etree.Element, tag string) string {
	if child := el.SelectElement(tag); child != nil {
		return child.Text()
	}
	return ""
}

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

func addressElement(attributes ...string) *etree.Element {
	address := etree.NewElement("address")
	for i := 0; i+1 < len(attributes); i += 2 {
		address.CreateAttr(attributes[i], attributes[i+1])
	}
	return address
}
