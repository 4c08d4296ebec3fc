// SPDX-License-Identifier: Apache-2.0

package libvirt

import "testing"

// What QEMU 7.2 says under libvirt 9.0, and what it would say where libvirt leaves out raw.
func TestTheGraphSaysWhetherAnExportIsOpenAndMayBeWritten(t *testing.T) {
	const address, other, tcp = "nbd+unix:///web?socket=/run/nbd.sock", "nbd+unix:///other?socket=/run/nbd.sock", "nbd://nbd.example:10809/web"
	node := func(driver, file string, readOnly bool) graphNode {
		return graphNode{Name: driver + "-node", Driver: driver, File: file, ReadOnly: readOnly}
	}
	nbd := func(readOnly bool) graphNode { return node("nbd", address, readOnly) }
	raw := func(readOnly bool) graphNode { return node("raw", address, readOnly) }
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
		"over TCP":                   {[]graphNode{node("raw", tcp, false), node("nbd", tcp, false)}, tcp, true, true},
		"the default export":         {[]graphNode{node("nbd", "nbd+unix://?socket=/run/nbd.sock", false)}, "nbd+unix:///?socket=/run/nbd.sock", true, true},
		"the default export of TCP":  {[]graphNode{node("nbd", "nbd://nbd.example:10809", true)}, "nbd://nbd.example:10809/", true, false},
	} {
		if _, writable, is := nodeAt(c.nodes, c.address); is != c.is || writable != c.writable {
			t.Errorf("%s: open %v, writable %v", name, is, writable)
		}
	}
}
