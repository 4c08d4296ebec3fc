// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"cmp"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

const (
	secretCeph = "ceph"
)

// PortCeph is the default port of a Ceph monitor.
const PortCeph = "6789"

// rbdProtocol is the protocol of RBD images of the configured clusters.
type rbdProtocol struct{}

func (rbdProtocol) check(address string, clusters rbd.Clusters) error {
	image, err := medium.ParseRBD(address)
	if err == nil {
		_, err = clusters.Find(image)
	}
	return err
}

// address returns "" unless the source has the monitors, the user and the secret of a configured
// cluster, and no other setting (a snapshot, a configuration file, encryption). The source may be
// all of the image or its beginning.
func (r rbdProtocol) address(src *libvirtxml.DomainDiskSource, clusters rbd.Clusters) string {
	pool, name, _ := strings.Cut(src.Network.Name, "/")
	for _, id := range clusters.IDs() {
		image := medium.RBDImage{Cluster: id, Pool: pool, Name: name}
		if image.Check() != nil {
			continue
		}
		want := &libvirtxml.DomainDiskSource{Network: r.source(image.URI(), clusters), Index: src.Index, StartupPolicy: src.StartupPolicy}
		if sliceOf(src, "raw") != 0 {
			want.Slices = src.Slices
		}
		if reflect.DeepEqual(withPlainHosts(src), withPlainHosts(want)) {
			return image.URI()
		}
	}
	return ""
}

func withPlainHosts(src *libvirtxml.DomainDiskSource) *libvirtxml.DomainDiskSource {
	plain, network := *src, *src.Network
	plain.Network, network.Hosts = &network, slices.Clone(network.Hosts)
	for i, host := range network.Hosts {
		host.Port = cmp.Or(host.Port, PortCeph)
		if host.Transport == transportTCP {
			host.Transport = ""
		}
		network.Hosts[i] = host
	}
	slices.SortFunc(network.Hosts, func(a, b libvirtxml.DomainDiskSourceHost) int {
		return strings.Compare(a.Name+":"+a.Port, b.Name+":"+b.Port)
	})
	if network.TLS == noTLS {
		network.TLS = ""
	}
	return &plain
}

func (rbdProtocol) source(uri string, clusters rbd.Clusters) *libvirtxml.DomainDiskSourceNetwork {
	image, _ := medium.ParseRBD(uri)
	cluster := clusters[image.Cluster]
	source := &libvirtxml.DomainDiskSourceNetwork{
		Protocol: medium.ProtocolRBD, Name: image.Spec(),
		Auth: &libvirtxml.DomainDiskAuth{Username: cluster.User, Secret: &libvirtxml.DomainDiskSecret{Type: secretCeph, UUID: cluster.Secret}},
	}
	for _, monitor := range cluster.Monitors {
		name, port, _ := net.SplitHostPort(monitor)
		source.Hosts = append(source.Hosts, libvirtxml.DomainDiskSourceHost{Name: name, Port: port})
	}
	return source
}

func (r rbdProtocol) set(source *etree.Element, uri string, clusters rbd.Clusters) {
	is := r.source(uri, clusters)
	source.CreateAttr("protocol", is.Protocol)
	source.CreateAttr("name", is.Name)
	for _, at := range is.Hosts {
		host := source.CreateElement("host")
		host.CreateAttr("name", at.Name)
		host.CreateAttr("port", at.Port)
	}
	auth := source.CreateElement("auth")
	auth.CreateAttr("username", is.Auth.Username)
	secret := auth.CreateElement("secret")
	secret.CreateAttr("type", is.Auth.Secret.Type)
	secret.CreateAttr("uuid", is.Auth.Secret.UUID)
}

// moveAuth moves the <auth> of an RBD image from the <disk>, where older libvirt had it, into the
// source.
func moveAuth(x *libvirtxml.DomainDisk) {
	if x.Auth == nil || x.Source == nil || x.Source.Network == nil || x.Source.Network.Protocol != medium.ProtocolRBD || x.Source.Network.Auth != nil {
		return
	}
	x.Source.Network.Auth, x.Auth = x.Auth, nil
}

// has does not compare monitors, user and secret: the method address does.
func (rbdProtocol) has(source *etree.Element) bool {
	if source.SelectAttrValue("protocol", "") != medium.ProtocolRBD || source.SelectAttrValue("tls", noTLS) != noTLS {
		return false
	}
	return !slices.ContainsFunc(source.SelectElements("host"), func(host *etree.Element) bool {
		return len(host.ChildElements()) > 0 || hasOther(host, "transport", "name", "port")
	})
}

func (rbdProtocol) keeps(child *etree.Element) bool {
	return child.FullTag() == "host" || isCephAuth(child)
}

func isCephAuth(auth *etree.Element) bool {
	children := auth.ChildElements()
	return auth.FullTag() == "auth" && len(children) == 1 && children[0].FullTag() == "secret" && len(children[0].ChildElements()) == 0 &&
		!hasOther(auth, "username") && !hasOther(children[0], "type", "uuid")
}

func hasOther(el *etree.Element, known ...string) bool {
	return slices.ContainsFunc(el.Attr, func(a etree.Attr) bool { return a.Space != "" || !slices.Contains(known, a.Key) })
}
