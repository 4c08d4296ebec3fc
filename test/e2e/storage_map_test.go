// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// namedMap is a map of multipath by its name in /dev/mapper, which another one can have. It is
// called by its WWID, as another one is.
type namedMap struct{ name, another, uuid, anotherUUID string }

// multipathMap is MULTIPATH. What multipathd would do with a map of another name is nothing that a
// test is about: it is off.
func multipathMap(t *testing.T) *namedMap {
	t.Helper()
	one, another := storageDevice(t, "MULTIPATH"), storageDevice(t, "LARGER_MULTIPATH")
	m := &namedMap{
		name: saysOfItself(t, one, "dm/name"), uuid: saysOfItself(t, one, "dm/uuid"),
		another: saysOfItself(t, another, "dm/name"), anotherUUID: saysOfItself(t, another, "dm/uuid"),
	}
	withoutMultipathd(t)
	return m
}

func (m *namedMap) path() string         { return "/dev/mapper/" + m.name }
func (m *namedMap) identities() []string { return []string{m.uuid, m.anotherUUID} }

func (m *namedMap) whileAnother(t *testing.T, do func()) {
	t.Helper()
	whileRenamed(m.name, m.another, func(from, to string) { tool(t, "dmsetup", "rename", from, to) }, do)
}

// Its name is the same, and the WWID behind it is another one.
func TestStorageANameOfAMapOfMultipathThatIsAnothersByNowIsRefusedUnderARunningGuest(t *testing.T) {
	m := multipathMap(t)
	g := storageGuest(t)
	g.movesToItAlone(t, m, m.path(), storageDevice(t, "LARGER_MULTIPATH"))
	g.assertSettledAndGoOn(t)

	v := g.start(t, "vda", "--to-pool", "b")
	g.host.refusesAnother(t, m, api.CodeChainChanged, v.copyArgs())
	v.copy(t)
	for _, args := range [][]string{v.completeArgs(), v.cancelArgs()} {
		g.host.refusesAnother(t, m, api.CodeChainChanged, args)
	}
	g.writes(t)
	v.complete(t)
	g.assertSettled(t)
}
