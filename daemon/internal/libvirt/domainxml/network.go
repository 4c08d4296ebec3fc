// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

func checkAddress(path string, clusters rbd.Clusters) error {
	if !medium.IsRBD(path) {
		_, err := medium.ParseNBD(path)
		return err
	}
	image, err := medium.ParseRBD(path)
	if err == nil {
		_, err = clusters.Find(image)
	}
	return err
}

func addressOfSource(src *libvirtxml.DomainDiskSource, clusters rbd.Clusters) string {
	if src.Network != nil && src.Network.Protocol == protocolRBD {
		return rbdOf(src, clusters)
	}
	return exportOf(src)
}

func networkSource(uri string, clusters rbd.Clusters) *libvirtxml.DomainDiskSourceNetwork {
	if medium.IsRBD(uri) {
		return rbdSource(uri, clusters)
	}
	return exportSource(uri)
}
