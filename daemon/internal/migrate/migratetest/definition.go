// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// definitionWatch holds the persistent definition against what the guest was told, at each look at
// the domain: guarantee 4 of ARCHITECTURE.md. Steps look between any two of their effects, and
// after every death.
type definitionWatch struct {
	on bool
	// unread is how many looks one after the other could not read what the definition names: what
	// was seen by one may be gone by the time that it is read.
	unread int
	// last is the definition that the look before has seen, and run the process of the guest then.
	last []hv.Image
	run  int
	// overtaken is how many more looks the definition may be wrong: see overtakenLooks.
	overtaken int
	wrong     []string
}

// overtakenLooks is in how many looks a change of the definition has to be taken back if the guest
// got another process between the look that the change was decided by and the change: nothing in
// libvirt ties the one to the other.
const overtakenLooks = 12

// look notes what is wrong with the definition that a look has seen. Still reports whether the
// guest was told of no write since then.
func (d *definitionWatch) look(fake *hvtest.Fake, dom *hv.Domain, still func() bool) {
	disk := dom.ConfigDisk("vda")
	if disk == nil {
		return
	}
	switch same := slices.Equal(d.last, disk.Chain); {
	case !same && d.last != nil && d.run != dom.Run:
		d.overtaken = overtakenLooks
	case !same:
		d.overtaken = 0
	}
	d.last, d.run = disk.Chain, dom.Run
	want, err := fake.Acknowledged(Instance, "vda")
	if err != nil {
		return
	}
	read := func() (map[int64]uint64, error) { return fake.Read(disk.Chain) }
	if !disk.Terminated { // its end is in the headers
		read = func() (map[int64]uint64, error) { return fake.ReadImage(disk.Top().Path) }
	}
	got, err := read()
	switch {
	case !still():
	case err != nil:
		if d.unread++; d.unread > 1 {
			d.wrong = append(d.wrong, fmt.Sprintf("the definition names %v: %v", disk.Chain, err))
		}
	case !maps.Equal(want, got) && d.overtaken > 0:
		d.overtaken--
	case !maps.Equal(want, got):
		d.wrong = append(d.wrong, fmt.Sprintf("the definition names %v with %v, and the guest was told %v", disk.Chain, got, want))
	default:
		d.unread = 0
	}
}
