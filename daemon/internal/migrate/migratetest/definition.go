// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// definitionWatch checks the persistent definition against the guest's acknowledged writes at each
// look at the domain (guarantee 4 of ARCHITECTURE.md). Steps look between any two of their
// effects, and after each death.
type definitionWatch struct {
	on bool
	// unread counts how many looks in a row could not read the images: an image may be removed
	// between a look and its reading.
	unread int
	// last is the definition, run the guest's run, at the previous look.
	last []hv.Image
	run  int
	// overtaken is how many further looks may find a wrong definition.
	overtaken int
	wrong     []string
}

// overtakenLooks is how many looks may find a wrong definition after the guest restarted between a
// step's look and its change, which libvirt does not connect. By then a step reverts the change.
const overtakenLooks = 12

// look records the errors of the definition. still reports whether the guest has had no further
// write acknowledged.
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
	if !disk.Terminated { // the headers have its end
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
