// SPDX-License-Identifier: Apache-2.0

package qmp

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

// Output of QEMU 7.2 under libvirt 9.0, and the expected output where libvirt omits raw.
func TestTheGraphSaysWhetherAnExportIsOpenAndMayBeWritten(t *testing.T) {
	const address, other, tcp = "nbd+unix:///web?socket=/run/nbd.sock", "nbd+unix:///other?socket=/run/nbd.sock", "nbd://nbd.example:10809/web"
	node := func(driver, file string, readOnly bool) Node {
		return Node{Name: driver + "-node", Driver: driver, File: file, ReadOnly: readOnly}
	}
	nbd := func(readOnly bool) Node { return node("nbd", address, readOnly) }
	raw := func(readOnly bool) Node { return node("raw", address, readOnly) }
	slice := func(below string, readOnly bool) Node {
		return node("raw", `json:{"offset": 0, "driver": "raw", "size": 4194304, "file": `+below+`}`, readOnly)
	}
	const (
		options      = `{"server.path": "/run/nbd.sock", "driver": "nbd", "export": "web", "server.type": "unix"}`
		otherOptions = `{"server.path": "/run/nbd.sock", "driver": "nbd", "export": "other", "server.type": "unix"}`
		tcpOptions   = `{"server.port": "10809", "server.host": "nbd.example", "driver": "nbd", "export": "web", "server.type": "inet"}`
	)
	for name, c := range map[string]struct {
		nodes        []Node
		address      string
		is, writable bool
	}{
		"nothing":                    {nil, address, false, false},
		"another export":             {[]Node{node("nbd", other, false)}, address, false, false},
		"a file of that name":        {[]Node{node("file", address, false)}, address, false, false},
		"a disk":                     {[]Node{raw(false), nbd(false)}, address, true, true},
		"a disk, below first":        {[]Node{nbd(false), raw(false)}, address, true, true},
		"frozen":                     {[]Node{raw(true), nbd(false)}, address, true, false},
		"frozen, below first":        {[]Node{nbd(false), raw(true)}, address, true, false},
		"without a format":           {[]Node{nbd(false)}, address, true, true},
		"without a format, frozen":   {[]Node{nbd(true)}, address, true, false},
		"frozen, and once more bare": {[]Node{nbd(false), raw(true), nbd(false)}, address, true, true},
		"frozen, and once more":      {[]Node{nbd(false), raw(true), raw(false), nbd(false)}, address, true, true},
		"frozen twice":               {[]Node{nbd(false), raw(true), raw(true), nbd(true)}, address, true, false},
		"a beginning":                {[]Node{slice(options, false), nbd(false)}, address, true, true},
		"a beginning, frozen":        {[]Node{nbd(false), slice(options, true)}, address, true, false},
		"another one's beginning":    {[]Node{nbd(false), slice(otherOptions, true)}, address, true, true},
		"a beginning over TCP":       {[]Node{slice(tcpOptions, true), node("nbd", tcp, false)}, tcp, true, false},
		"a file's beginning":         {[]Node{slice(`{"driver": "file", "filename": "/pool/web.raw"}`, false)}, address, false, false},
		"over TCP":                   {[]Node{node("raw", tcp, false), node("nbd", tcp, false)}, tcp, true, true},
		"the default export":         {[]Node{node("nbd", "nbd+unix://?socket=/run/nbd.sock", false)}, "nbd+unix:///?socket=/run/nbd.sock", true, true},
		"the default export of TCP":  {[]Node{node("nbd", "nbd://nbd.example:10809", true)}, "nbd://nbd.example:10809/", true, false},
	} {
		if names, writable, err := NodesAt(c.nodes, c.address, nil); err != nil || len(names) > 0 != c.is || writable != c.writable {
			t.Errorf("%s: open %v, writable %v", name, names, writable)
		}
	}
}

// Output of QEMU 7.2 for Ceph images. Their clients are counted, so each must be found.
func TestTheGraphSaysHowManyClientsOfAnRBDImageThereAre(t *testing.T) {
	const (
		id       = "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11"
		address  = "rbd://" + id + "/fast/web"
		options  = `{"pool": "fast", "image": "web", "server.0.host": "10.0.0.9", "server.1.host": "10.0.0.1", "server.1.port": "6789", "driver": "rbd", "server.0.port": "3300", "user": "libvirt"}`
		snap     = `{"pool": "fast", "image": "web", "snapshot": "monday", "driver": "rbd", "server.0.host": "10.0.0.1", "server.0.port": "6789"}`
		other    = `{"pool": "fast", "image": "web", "driver": "rbd", "server.0.host": "10.0.0.2", "server.0.port": "6789"}`
		portless = `{"pool": "fast", "image": "web", "driver": "rbd", "server.0.host": "10.0.0.1", "server.0.port": "0"}`
		named    = `{"pool": "rbd", "image": "web", "driver": "rbd", "server.0.host": "10.0.0.1", "server.0.port": "6789"}`
	)
	clusters := rbd.Clusters{
		id:                                     {Monitors: []string{"10.0.0.1:6789"}},
		"00000000-58a1-4ac3-8f0e-0e3c6f0f7a11": {Monitors: []string{"10.0.0.2:6789"}},
	}
	image := func(options string, readOnly bool) Node {
		return Node{Name: "storage", Driver: "rbd", File: "json:" + options, ReadOnly: readOnly}
	}
	raw := func(options string, readOnly bool) Node {
		return Node{Name: "format", Driver: "raw", File: `json:{"driver": "raw", "file": ` + options + `}`, ReadOnly: readOnly}
	}
	slice := func(options string, readOnly bool) Node {
		return Node{Name: "format", Driver: "raw", File: `json:{"offset": 0, "driver": "raw", "size": 512, "file": ` + options + `}`, ReadOnly: readOnly}
	}
	for name, c := range map[string]struct {
		nodes    []Node
		clients  int
		writable bool
	}{
		"nothing":                       {nil, 0, false},
		"a disk":                        {[]Node{raw(options, false), image(options, false)}, 1, true},
		"a monitor without a port":      {[]Node{image(portless, false)}, 1, true},
		"frozen":                        {[]Node{image(options, false), raw(options, true)}, 1, false},
		"a beginning":                   {[]Node{slice(options, false), image(options, false)}, 1, true},
		"a beginning, frozen":           {[]Node{image(options, false), slice(options, true)}, 1, false},
		"without a format":              {[]Node{image(options, false)}, 1, true},
		"without a format, frozen":      {[]Node{image(options, true)}, 1, false},
		"frozen, and once more":         {[]Node{image(options, false), raw(options, true), raw(options, false), image(options, false)}, 2, true},
		"a snapshot":                    {[]Node{raw(snap, true), image(snap, true)}, 0, false},
		"another cluster's":             {[]Node{raw(other, false), image(other, false)}, 0, false},
		"another pool's":                {[]Node{raw(named, false), image(named, false)}, 0, false},
		"a file over which nothing is":  {[]Node{{Driver: "raw", File: "/pool/web.raw"}}, 0, false},
		"what QEMU has cut off":         {[]Node{{Driver: "rbd", File: "json:" + options[:40]}, {Driver: "raw", File: "json:" + options[:40]}}, 0, false},
		"a driver of the options alone": {[]Node{{Driver: "file", File: "json:" + options}}, 0, false},
	} {
		if names, writable, err := NodesAt(c.nodes, address, clusters); err != nil || len(names) != c.clients || writable != c.writable {
			t.Errorf("%s: open as %v, writable %v", name, names, writable)
		}
	}
}

// Without the nodes of a kind every witness of its images would be silent.
func TestTheNodesOfEachKindOfAddressAreKnown(t *testing.T) {
	for _, kind := range medium.Addressed() {
		if addressOf[kind.Protocol] == nil {
			t.Errorf("the nodes of %s are unknown", kind.Name)
		}
	}
	if names, _, err := NodesAt([]Node{{Driver: "file", File: "/srv/web.raw"}}, "/srv/web.raw", nil); err == nil {
		t.Errorf("a path has the nodes %v, want an error", names)
	}
}
