// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// shelved makes instance web of host a with the volume v0 in pool fast, and offloads it.
func (s *site) shelved() {
	s.T.Helper()
	in := storetest.WebRegister()
	in.State, in.Disks[0].VolumeName, in.Disks[0].Location = api.InstanceStopped, "v0", storetest.At("/fast/v0")
	expect.Value(s.Store.Instances.Register(s.T.Context(), store.Call{}, in))(s.T)
	s.shelf(storetest.ToShelf())
	s.shelf(storetest.Offload())
}

// shelf makes a transition of the instance.
func (s *site) shelf(in api.InstanceTransition) {
	s.T.Helper()
	expect.Value(s.Store.Shelf.Transition(s.T.Context(), store.Call{}, storetest.Web, in))(s.T)
}

// The instance's last host is lost, and another host reaches both pools. The instance can be
// unshelved there with the moved volume.
func TestVolumeOfAShelvedInstanceIsMovedByAHostThatReachesBothPools(t *testing.T) {
	bubble(t, func(s *site) {
		for _, host := range []string{"a", "b"} {
			s.hosts[host].Report(storetest.NFS("fast"), storetest.NFS("slow"))
		}
		s.shelved()
		s.hosts["a"].Away()
		relaytest.Pass(time.Minute)
		id := s.drain(1)
		relaytest.Pass(5 * time.Second)
		s.want(id, "running: v0 moving")
		expect.OK(s.T, s.Store.Shelf.AskUnshelve(s.T.Context(), store.Call{}, "web", s.hosts["b"].ID))
		_, err := s.Store.Shelf.PlanUnshelve(s.T.Context(), "web", "b")
		if api.CodeOf(err) != api.CodeMigrationActive {
			s.T.Errorf("unshelve while it moves: %v", err)
		}
		s.until(id)
		s.movedOnce(1)
		s.want(id, "done: v0 moved")
		s.shelf(storetest.OfB(storetest.Claim()))
		if at, err := s.Store.Attachments.All(s.T.Context(), "", "web", store.Viewer{}); err != nil || len(at) != 1 || at[0].Location != storetest.At("/slow/v0") || at[0].Host != "b" {
			s.T.Errorf("attachments = %+v %v", at, err)
		}
	})
}

func TestVolumeThatNoHostCanMoveIsSkippedAndSaysWhy(t *testing.T) {
	bubble(t, func(s *site) {
		s.hosts["a"].Report(storetest.Dir("fast"))
		s.shelved()
		s.volume("b", "v1")
		id := s.drain(1)
		s.until(id)
		s.want(id, "done: v0 skipped unsupported_disk, v1 moved")
	})
}

// The only host that reaches both pools is away, so the volume waits.
func TestVolumeOfAShelvedInstanceWaitsForItsHost(t *testing.T) {
	bubble(t, func(s *site) {
		s.shelved()
		s.hosts["a"].Away()
		relaytest.Pass(time.Minute)
		id := s.drain(1)
		relaytest.Pass(2 * time.Minute)
		s.want(id, "running: v0 pending")
		s.hosts["a"].Start()
		s.until(id)
		s.movedOnce(1)
	})
}
