// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"cmp"
	"net"
	"slices"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/internal/medium"
)

const (
	protocolNBD   = "nbd"
	portNBD       = "10809" // the default
	transportUnix = "unix"
	transportTCP  = "tcp" // the default
	noTLS         = "no"  // libvirt adds it if no TLS was requested
)

var exportAttributes = []string{"protocol", "name", "tls"}

// exportOf returns the address of the NBD export in a source. It returns "" for another source, or
// for settings that the address cannot express (TLS, a secret, a reconnect delay).
func exportOf(src *libvirtxml.DomainDiskSource) string {
	x := src.Network
	if x == nil || x.Protocol != protocolNBD || x.TLS != "" && x.TLS != noTLS || len(x.Hosts) != 1 || x.Query != "" || x.TLSHostname != "" ||
		x.Identity != nil || x.KnownHosts != nil || x.Initiator != nil || x.Snapshot != nil || x.Config != nil || x.Reconnect != nil || x.Auth != nil {
		return ""
	}
	export := medium.NBDExport{Name: x.Name}
	switch host := x.Hosts[0]; {
	case host.Transport == transportUnix && host.Name == "" && host.Port == "":
		export.Socket = host.Socket
	case cmp.Or(host.Transport, transportTCP) == transportTCP && host.Socket == "":
		export.Server = net.JoinHostPort(host.Name, cmp.Or(host.Port, portNBD))
	}
	if export.Check() != nil {
		return ""
	}
	return export.URI()
}

func exportSource(uri string) *libvirtxml.DomainDiskSourceNetwork {
	export, _ := medium.ParseNBD(uri) // sourceAttr has checked it
	return &libvirtxml.DomainDiskSourceNetwork{
		Protocol: protocolNBD, Name: export.Name,
		Hosts: []libvirtxml.DomainDiskSourceHost{hostOf(export)},
	}
}

func hostOf(export medium.NBDExport) libvirtxml.DomainDiskSourceHost {
	if export.Server == "" {
		return libvirtxml.DomainDiskSourceHost{Transport: transportUnix, Socket: export.Socket}
	}
	name, port, _ := net.SplitHostPort(export.Server) // Check has checked it
	return libvirtxml.DomainDiskSourceHost{Name: name, Port: port}
}

func setExport(source *etree.Element, uri string) {
	export, _ := medium.ParseNBD(uri) // sourceAttr has checked it
	source.CreateAttr("protocol", protocolNBD)
	if export.Name != "" {
		source.CreateAttr("name", export.Name)
	}
	is, host := hostOf(export), source.CreateElement("host")
	for _, attr := range [][2]string{{"transport", is.Transport}, {"socket", is.Socket}, {"name", is.Name}, {"port", is.Port}} {
		if attr[1] != "" {
			host.CreateAttr(attr[0], attr[1])
		}
	}
}

var hostAttributes = []string{"transport", "socket", "name", "port"}

// isExport reports whether exportOf accepts a <source>, as far as its host shows.
func isExport(source *etree.Element) bool {
	hosts := source.SelectElements("host")
	if source.SelectAttrValue("protocol", "") != protocolNBD || len(hosts) != 1 || len(hosts[0].ChildElements()) > 0 {
		return false
	}
	if slices.ContainsFunc(hosts[0].Attr, func(a etree.Attr) bool { return a.Space != "" || !slices.Contains(hostAttributes, a.Key) }) {
		return false
	}
	if source.SelectAttrValue("tls", noTLS) != noTLS {
		return false
	}
	at := "name"
	if hosts[0].SelectAttrValue("transport", transportTCP) == transportUnix {
		at = "socket"
	}
	return hosts[0].SelectAttrValue(at, "") != ""
}
