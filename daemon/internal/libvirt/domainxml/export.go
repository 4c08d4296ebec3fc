// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"cmp"
	"net"
	"slices"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

const (
	portNBD       = "10809" // the default
	transportUnix = "unix"
	transportTCP  = "tcp" // the default
	noTLS         = "no"  // libvirt adds it if no TLS was requested
)

// nbdProtocol is the protocol of exports of NBD servers.
type nbdProtocol struct{}

func (nbdProtocol) check(address string, _ rbd.Clusters) error {
	_, err := medium.ParseNBD(address)
	return err
}

// address returns "" for a source that is no NBD export, and for settings that the address cannot
// express (TLS, a secret, a reconnect delay).
func (nbdProtocol) address(src *libvirtxml.DomainDiskSource, _ rbd.Clusters) string {
	x := src.Network
	if x == nil || x.Protocol != medium.ProtocolNBD || x.TLS != "" && x.TLS != noTLS || len(x.Hosts) != 1 || x.Query != "" || x.TLSHostname != "" ||
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

func (nbdProtocol) source(uri string, _ rbd.Clusters) *libvirtxml.DomainDiskSourceNetwork {
	export, _ := medium.ParseNBD(uri) // checked before
	return &libvirtxml.DomainDiskSourceNetwork{
		Protocol: medium.ProtocolNBD, Name: export.Name,
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

func (nbdProtocol) set(source *etree.Element, uri string, _ rbd.Clusters) {
	export, _ := medium.ParseNBD(uri) // checked before
	source.CreateAttr("protocol", medium.ProtocolNBD)
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

func (nbdProtocol) has(source *etree.Element) bool {
	hosts := source.SelectElements("host")
	if source.SelectAttrValue("protocol", "") != medium.ProtocolNBD || len(hosts) != 1 || len(hosts[0].ChildElements()) > 0 {
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

func (nbdProtocol) keeps(child *etree.Element) bool { return child.FullTag() == "host" }
