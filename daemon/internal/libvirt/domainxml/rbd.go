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
	"github.com/volferry/volferry/internal/api"
)

const (
	protocolRBD = "rbd"
	secretCeph  = "ceph"
)

// PortCeph is that of a monitor for which none is said.
const PortCeph = "6789"

// rbdOf is the address of the RBD image that a source names, if it is opened as the configuration
// has it of one of the clusters: with all its monitors and no other ones, its user and its secret,
// and with nothing else (a snapshot, a configuration file, encryption), be it all of the image or
// its beginning. "" otherwise.
func rbdOf(src *libvirtxml.DomainDiskSource, clusters rbd.Clusters) string {
	pool, name, _ := strings.Cut(src.Network.Name, "/")
	for _, id := range clusters.IDs() {
		image := api.RBDImage{Cluster: id, Pool: pool, Name: name}
		if image.Check() != nil {
			continue
		}
		want := &libvirtxml.DomainDiskSource{Network: rbdSource(image.URI(), clusters), Index: src.Index, StartupPolicy: src.StartupPolicy}
		if sliceOf(src, "raw") != 0 {
			want.Slices = src.Slices // hv.Image says it beside the address
		}
		if reflect.DeepEqual(withPlainHosts(src), withPlainHosts(want)) {
			return image.URI()
		}
	}
	return ""
}

// withPlainHosts is a source with its hosts in order, and said in one way.
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

// rbdSource is the <source> of an RBD image, whose address and cluster were checked.
func rbdSource(uri string, clusters rbd.Clusters) *libvirtxml.DomainDiskSourceNetwork {
	image, _ := api.ParseRBD(uri)
	cluster := clusters[image.Cluster]
	source := &libvirtxml.DomainDiskSourceNetwork{
		Protocol: protocolRBD, Name: image.Spec(),
		Auth: &libvirtxml.DomainDiskAuth{Username: cluster.User, Secret: &libvirtxml.DomainDiskSecret{Type: secretCeph, UUID: cluster.Secret}},
	}
	for _, monitor := range cluster.Monitors {
		name, port, _ := net.SplitHostPort(monitor)
		source.Hosts = append(source.Hosts, libvirtxml.DomainDiskSourceHost{Name: name, Port: port})
	}
	return source
}

// setRBD points a <source>, which names nothing yet, at an RBD image, whose address and cluster
// were checked.
func setRBD(source *etree.Element, uri string, clusters rbd.Clusters) {
	is := rbdSource(uri, clusters)
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

// moveAuth moves the user of an RBD image from where libvirt once had it, beside the source, into
// that.
func moveAuth(x *libvirtxml.DomainDisk) {
	if x.Auth == nil || x.Source == nil || x.Source.Network == nil || x.Source.Network.Protocol != protocolRBD || x.Source.Network.Auth != nil {
		return
	}
	x.Source.Network.Auth, x.Auth = x.Auth, nil
}

// rbdAttributes may stand in the <source> of an RBD image.
var rbdAttributes = []string{"protocol", "name", "tls"}

// isRBD reports whether a <source> is of an RBD image, with nothing in its hosts that another image
// would lose. Whether that is an image with an address is rbdOf's to say.
func isRBD(source *etree.Element) bool {
	if source == nil || source.SelectAttrValue("protocol", "") != protocolRBD || source.SelectAttrValue("tls", noTLS) != noTLS {
		return false
	}
	return !slices.ContainsFunc(source.SelectElements("host"), func(host *etree.Element) bool {
		return len(host.ChildElements()) > 0 || hasOther(host, "transport", "name", "port")
	})
}

// isCephAuth reports whether an <auth> says no more than a user and the UUID of a secret.
func isCephAuth(auth *etree.Element) bool {
	children := auth.ChildElements()
	return auth.FullTag() == "auth" && len(children) == 1 && children[0].FullTag() == "secret" && len(children[0].ChildElements()) == 0 &&
		!hasOther(auth, "username") && !hasOther(children[0], "type", "uuid")
}

// hasOther reports whether an element has an attribute but these.
func hasOther(el *etree.Element, known ...string) bool {
	return slices.ContainsFunc(el.Attr, func(a etree.Attr) bool { return a.Space != "" || !slices.Contains(known, a.Key) })
}
