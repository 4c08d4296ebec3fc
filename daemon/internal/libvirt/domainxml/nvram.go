// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"strings"

	"github.com/beevik/etree"
)

// NVRAMElement returns the <nvram> element and its file, which is empty for a guest without NVRAM
// or before its first start.
func NVRAMElement(domain *etree.Element) (el *etree.Element, file string, err error) {
	el = domain.FindElement("os/nvram")
	if el == nil {
		return nil, "", nil
	}
	source := el.SelectElement("source")
	if source == nil {
		return el, strings.TrimSpace(el.Text()), nil
	}
	if el.SelectAttrValue("type", "file") != "file" {
		return nil, "", LeansOn("its NVRAM on other storage than a file")
	}
	return el, source.SelectAttrValue("file", ""), nil
}

// setNVRAM gives the domain its own NVRAM file, named by its id: the file name from another host
// may belong to another domain here.
func setNVRAM(domain *etree.Element, id string) (name string, err error) {
	el, _, err := NVRAMElement(domain)
	if err != nil || el == nil {
		return "", err
	}
	name = id + "_VARS.fd"
	if source := el.SelectElement("source"); source != nil {
		source.CreateAttr("file", NVRAMHome+name)
	} else {
		el.SetText(NVRAMHome + name)
	}
	return name, nil
}
