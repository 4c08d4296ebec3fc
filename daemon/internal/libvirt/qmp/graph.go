// SPDX-License-Identifier: Apache-2.0

package qmp

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

// Node is a node of QEMU's block graph (query-named-block-nodes).
type Node struct {
	Name     string `json:"node-name"`
	Driver   string `json:"drv"`
	File     string `json:"file"`
	ReadOnly bool   `json:"ro"`

	DirtyBitmaps []Bitmap `json:"dirty-bitmaps"`
}

// driverRaw is the driver of the format node that libvirt before 9.10 puts over the node of a
// network image.
const driverRaw = "raw"

// addressOf has, by the protocol of an address, the function that returns the address of a node's
// image, or "". QEMU's driver has the name of the protocol.
var addressOf = map[string]func(*Node, rbd.Clusters) string{
	medium.ProtocolNBD: (*Node).export,
	medium.ProtocolRBD: (*Node).image,
}

// NodesAt finds the nodes with their own connection to an address, and reports whether QEMU may
// write through one of them. libvirt opens such a node with all permissions that a format node
// over it could need. So each read-only format node offsets one writable node. NodesAt returns an
// error for an unknown protocol.
func NodesAt(nodes []Node, address string, clusters rbd.Clusters) (names []string, writable bool, err error) {
	if addressOf[medium.Of(address).Protocol] == nil {
		return nil, false, fmt.Errorf("look for %s in QEMU's block graph: its nodes are unknown", address)
	}
	writers := 0
	for _, n := range nodes {
		if n.address(clusters) != address {
			continue
		}
		switch {
		case n.Driver == driverRaw && !n.ReadOnly:
			writable = true
		case n.Driver == driverRaw:
			writers--
		case !n.ReadOnly:
			writers++
		}
		if n.Driver != driverRaw {
			names = append(names, n.Name)
		}
	}
	return names, writable || writers > 0, nil
}

// address returns the address of the network image of a node, or of the node below it, or "".
func (n *Node) address(clusters rbd.Clusters) string {
	if read := addressOf[n.Driver]; read != nil {
		return read(n, clusters)
	}
	if n.Driver != driverRaw {
		return ""
	}
	below := n.below()
	for _, read := range addressOf {
		if address := read(below, clusters); address != "" {
			return address
		}
	}
	return ""
}

// below returns the node below a raw node. Only its file name is set.
func (n *Node) below() *Node {
	options, is := strings.CutPrefix(n.File, optionsPrefix)
	if !is {
		return n
	}
	var over struct {
		File json.RawMessage `json:"file"`
	}
	if json.Unmarshal([]byte(options), &over) != nil {
		return &Node{}
	}
	return &Node{File: optionsPrefix + string(over.File)}
}

func (n *Node) export(rbd.Clusters) string {
	if options, is := strings.CutPrefix(n.File, optionsPrefix); is {
		return exportIn([]byte(options))
	}
	// QEMU writes no name for the default export of a server.
	file := strings.Replace(n.File, "nbd+unix://?", medium.NBDScheme+"?", 1)
	if server, is := strings.CutPrefix(file, medium.NBDTCPScheme); is && !strings.Contains(server, "/") {
		file += "/"
	}
	export, err := medium.ParseNBD(file)
	if err != nil {
		return ""
	}
	return export.URI()
}

// exportIn returns the address of the NBD export in a node's options. QEMU writes options instead
// of an address for a node that has only the beginning of an export.
func exportIn(options []byte) string {
	var named struct {
		Driver string `json:"driver"`
		Export string `json:"export"`
		Socket string `json:"server.path"`
		Host   string `json:"server.host"`
		Port   string `json:"server.port"`
	}
	if json.Unmarshal(options, &named) != nil || named.Driver != medium.ProtocolNBD {
		return ""
	}
	export := medium.NBDExport{Name: named.Export, Socket: named.Socket}
	if named.Socket == "" {
		export.Server = net.JoinHostPort(named.Host, named.Port)
	}
	if export.Check() != nil {
		return ""
	}
	return export.URI()
}

// optionsPrefix begins the file name of a node that no address can express: QEMU writes options
// instead.
const optionsPrefix = "json:"

// image returns the address of the RBD image in QEMU's file name of a node. The monitors identify
// the cluster: no monitor belongs to two clusters.
func (n *Node) image(clusters rbd.Clusters) string {
	options, is := strings.CutPrefix(n.File, optionsPrefix)
	var named map[string]any
	if !is || json.Unmarshal([]byte(options), &named) != nil || named["driver"] != medium.ProtocolRBD || named["snapshot"] != nil || named["namespace"] != nil {
		return ""
	}
	image := medium.RBDImage{}
	image.Pool, _ = named["pool"].(string)
	image.Name, _ = named["image"].(string)
	for i := 0; ; i++ {
		host, is := named[fmt.Sprintf("server.%d.host", i)].(string)
		if !is {
			return ""
		}
		port, _ := named[fmt.Sprintf("server.%d.port", i)].(string)
		if port == "" || port == "0" { // libvirt writes 0 if a definition has no port
			port = domainxml.PortCeph
		}
		if id := clusters.Of(net.JoinHostPort(host, port)); id != "" {
			image.Cluster = id
			return image.URI()
		}
	}
}

// Path returns the file or device below a format node, or "" if QEMU writes no file name, as for
// an image that is opened with a key.
func (n *Node) Path() string {
	options, is := strings.CutPrefix(n.File, optionsPrefix)
	if !is {
		return n.File
	}
	var over struct {
		File struct {
			Filename string `json:"filename"`
		} `json:"file"`
	}
	if json.Unmarshal([]byte(options), &over) != nil {
		return ""
	}
	return over.File.Filename
}
