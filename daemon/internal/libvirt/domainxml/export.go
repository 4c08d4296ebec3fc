// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/internal/api"
)

const (
	protocolNBD   = "nbd"
	transportUnix = "unix"
	noTLS         = "no" // what libvirt adds where none was asked for
)

// exportAttributes may stand in the <source> of an export.
var exportAttributes = []string{"protocol", "name", "tls"}

// exportOf is the address of the NBD export that a source names, "" if it names something else,
// or is opened in a way that the address does not say (TLS, a secret, a delay before it connects
// again).
func exportOf(src *libvirtxml.DomainDiskSource) string {
	x := src.Network
	if x == nil || x.Protocol != protocolNBD || x.TLS != "" && x.TLS != noTLS || len(x.Hosts) != 1 || x.Query != "" || x.TLSHostname != "" ||
		x.Identity != nil || x.KnownHosts != nil || x.Initiator != nil || x.Snapshot != nil || x.Config != nil || x.Reconnect != nil || x.Auth != nil {
		return ""
	}
	host := x.Hosts[0]
	if host.Transport != transportUnix || host.Name != "" || host.Port != "" {
		return ""
	}
	export := api.NBDExport{Name: x.Name, Socket: host.Socket}
	if export.Check() != nil {
		return ""
	}
	return export.URI()
}

// networkSource is the <source> of the export at an address, which was checked.
func networkSource(uri string) *libvirtxml.DomainDiskSourceNetwork {
	export, _ := api.ParseNBD(uri) // sourceAttr has
	return &libvirtxml.DomainDiskSourceNetwork{
		Protocol: protocolNBD, Name: export.Name,
		Hosts: []libvirtxml.DomainDiskSourceHost{{Transport: transportUnix, Socket: export.Socket}},
	}
}

// setExport points a <source>, which names nothing yet, at the export at an address, which was
// checked.
func setExport(source *etree.Element, uri string) {
	export, _ := api.ParseNBD(uri) // sourceAttr has
	source.CreateAttr("protocol", protocolNBD)
	if export.Name != "" {
		source.CreateAttr("name", export.Name)
	}
	host := source.CreateElement("host")
	host.CreateAttr("transport", transportUnix)
	host.CreateAttr("socket", export.Socket)
}

// isExport says whether a <source> is that of an export that exportOf takes, as far as its host
// tells.
func isExport(source *etree.Element) bool {
	hosts := source.SelectElements("host")
	if source.SelectAttrValue("protocol", "") != protocolNBD || len(hosts) != 1 || len(hosts[0].ChildElements()) > 0 || len(hosts[0].Attr) != 2 {
		return false
	}
	tls := source.SelectAttrValue("tls", noTLS)
	return tls == noTLS && hosts[0].SelectAttrValue("transport", "") == transportUnix && hosts[0].SelectAttrValue("socket", "") != ""
}
