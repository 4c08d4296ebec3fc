// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/rbd"
)

// Output of QEMU 7.2 under libvirt 9.0, and the expected output where libvirt omits raw.
func TestTheGraphSaysWhetherAnExportIsOpenAndMayBeWritten(t *testing.T) {
	const address, other, tcp = "nbd+unix:///web?socket=/run/nbd.sock", "nbd+unix:///other?socket=/run/nbd.sock", "nbd://nbd.example:10809/web"
	node := func(driver, file string, readOnly bool) graphNode {
		return graphNode{Name: driver + "-node", Driver: driver, File: file, ReadOnly: readOnly}
	}
	nbd := func(readOnly bool) graphNode { return node("nbd", address, readOnly) }
	raw := func(readOnly bool) graphNode { return node("raw", address, readOnly) }
	slice := func(below string, readOnly bool) graphNode {
		return node("raw", `json:{"offset": 0, "driver": "raw", "size": 4194304, "file": `+below+`}`, readOnly)
	}
	const (
		options      = `{"server.path": "/run/nbd.sock", "driver": "nbd", "export": "web", "server.type": "unix"}`
		otherOptions = `{"server.path": "/run/nbd.sock", "driver": "nbd", "export": "other", "server.type": "unix"}`
		tcpOptions   = `{"server.port": "10809", "server.host": "nbd.example", "driver": "nbd", "export": "web", "server.type": "inet"}`
	)
	for name, c := range map[string]struct {
		nodes        []graphNode
		address      string
		is, writable bool
	}{
		"nothing":                    {nil, address, false, false},
		"another export":             {[]graphNode{node("nbd", other, false)}, address, false, false},
		"a file of that name":        {[]graphNode{node("file", address, false)}, address, false, false},
		"a disk":                     {[]graphNode{raw(false), nbd(false)}, address, true, true},
		"a disk, below first":        {[]graphNode{nbd(false), raw(false)}, address, true, true},
		"frozen":                     {[]graphNode{raw(true), nbd(false)}, address, true, false},
		"frozen, below first":        {[]graphNode{nbd(false), raw(true)}, address, true, false},
		"without a format":           {[]graphNode{nbd(false)}, address, true, true},
		"without a format, frozen":   {[]graphNode{nbd(true)}, address, true, false},
		"frozen, and once more bare": {[]graphNode{nbd(false), raw(true), nbd(false)}, address, true, true},
		"frozen, and once more":      {[]graphNode{nbd(false), raw(true), raw(false), nbd(false)}, address, true, true},
		"frozen twice":               {[]graphNode{nbd(false), raw(true), raw(true), nbd(true)}, address, true, false},
		"a beginning":                {[]graphNode{slice(options, false), nbd(false)}, address, true, true},
		"a beginning, frozen":        {[]graphNode{nbd(false), slice(options, true)}, address, true, false},
		"another one's beginning":    {[]graphNode{nbd(false), slice(otherOptions, true)}, address, true, true},
		"a beginning over TCP":       {[]graphNode{slice(tcpOptions, true), node("nbd", tcp, false)}, tcp, true, false},
		"a file's beginning":         {[]graphNode{slice(`{"driver": "file", "filename": "/pool/web.raw"}`, false)}, address, false, false},
		"over TCP":                   {[]graphNode{node("raw", tcp, false), node("nbd", tcp, false)}, tcp, true, true},
		"the default export":         {[]graphNode{node("nbd", "nbd+unix://?socket=/run/nbd.sock", false)}, "nbd+unix:///?socket=/run/nbd.sock", true, true},
		"the default export of TCP":  {[]graphNode{node("nbd", "nbd://nbd.example:10809", true)}, "nbd://nbd.example:10809/", true, false},
	} {
		if names, writable := nodesAt(c.nodes, c.address, nil); len(names) > 0 != c.is || writable != c.writable {
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
	image := func(options string, readOnly bool) graphNode {
		return graphNode{Name: "storage", Driver: "rbd", File: "json:" + options, ReadOnly: readOnly}
	}
	raw := func(options string, readOnly bool) graphNode {
		return graphNode{Name: "format", Driver: "raw", File: `json:{"driver": "raw", "file": ` + options + `}`, ReadOnly: readOnly}
	}
	slice := func(options string, readOnly bool) graphNode {
		return graphNode{Name: "format", Driver: "raw", File: `json:{"offset": 0, "driver": "raw", "size": 512, "file": ` + options + `}`, ReadOnly: readOnly}
	}
	for name, c := range map[string]struct {
		nodes    []graphNode
		clients  int
		writable bool
	}{
		"nothing":                       {nil, 0, false},
		"a disk":                        {[]graphNode{raw(options, false), image(options, false)}, 1, true},
		"a monitor without a port":      {[]graphNode{image(portless, false)}, 1, true},
		"frozen":                        {[]graphNode{image(options, false), raw(options, true)}, 1, false},
		"a beginning":                   {[]graphNode{slice(options, false), image(options, false)}, 1, true},
		"a beginning, frozen":           {[]graphNode{image(options, false), slice(options, true)}, 1, false},
		"without a format":              {[]graphNode{image(options, false)}, 1, true},
		"without a format, frozen":      {[]graphNode{image(options, true)}, 1, false},
		"frozen, and once more":         {[]graphNode{image(options, false), raw(options, true), raw(options, false), image(options, false)}, 2, true},
		"a snapshot":                    {[]graphNode{raw(snap, true), image(snap, true)}, 0, false},
		"another cluster's":             {[]graphNode{raw(other, false), image(other, false)}, 0, false},
		"another pool's":                {[]graphNode{raw(named, false), image(named, false)}, 0, false},
		"a file over which nothing is":  {[]graphNode{{Driver: "raw", File: "/pool/web.raw"}}, 0, false},
		"what QEMU has cut off":         {[]graphNode{{Driver: "rbd", File: "json:" + options[:40]}, {Driver: "raw", File: "json:" + options[:40]}}, 0, false},
		"a driver of the options alone": {[]graphNode{{Driver: "file", File: "json:" + options}}, 0, false},
	} {
		if names, writable := nodesAt(c.nodes, address, clusters); len(names) != c.clients || writable != c.writable {
			t.Errorf("%s: open as %v, writable %v", name, names, writable)
		}
	}
}
