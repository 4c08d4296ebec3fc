// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
)

const shelvedID = "20000000-0000-4000-8000-000000000001"

// pools has a host report what it has now.
func (s *site) pools(host string, pools ...api.Pool) {
	s.T.Helper()
	if _, err := s.Store.Report(s.T.Context(), store.Call{}, api.HostReport{ID: s.hosts[host].ID, Name: host, Epoch: 1, Pools: pools}); err != nil {
		s.T.Fatal(err)
	}
}

func pool(name string, shared bool) api.Pool {
	return api.Pool{Name: name, Type: "dir", Path: "/" + name, Active: true, Shared: shared}
}

// shelved makes an instance of a host with the volume v0 in pool fast, and leaves it to
// nobody.
func (s *site) shelved(host string) {
	s.T.Helper()
	zero := 0
	_, err := s.Store.RegisterInstance(s.T.Context(), store.Call{}, api.InstanceRegister{
		ID: shelvedID, Name: "web", Host: host, State: api.InstanceStopped,
		Disks: []api.AdoptedDisk{{
			VolumeID: "30000000-0000-4000-8000-000000000001", VolumeName: "v0", AttachmentID: "40000000-0000-4000-8000-000000000001",
			Device: "vda", BootIndex: &zero, Mode: api.ModeRW, Location: relaytest.Place("fast", "v0"),
		}},
	})
	expect.OK(s.T, err)
	s.shelf(host, api.InstanceStopped, api.InstanceShelved)
	s.shelf(host, api.InstanceShelved, api.InstanceShelvedOffloaded)
}

// shelf is a transition of the instance by a host.
func (s *site) shelf(host string, from, to api.InstanceState) {
	s.T.Helper()
	in := api.InstanceTransition{From: from, To: to, Host: host, Epoch: 1, OpID: "op of " + host}
	if from == api.InstanceStopped {
		in.Definition = &api.InstanceDefinition{Domain: "<domain/>"}
	}
	if _, err := s.Store.TransitionInstance(s.T.Context(), store.Call{}, shelvedID, in); err != nil {
		s.T.Fatal(err)
	}
}

// The host that had the instance last is away for good, and another one reaches both
// pools. The instance goes there with the volume that has moved.
func TestVolumeOfAShelvedInstanceIsMovedByAHostThatReachesBothPools(t *testing.T) {
	bubble(t, func(s *site) {
		for _, host := range []string{"a", "b"} {
			s.pools(host, pool("fast", true), pool("slow", true))
		}
		s.shelved("a")
		s.hosts["a"].Away()
		relaytest.Pass(time.Minute)
		id := s.drain(1)
		relaytest.Pass(5 * time.Second)
		s.want(id, "running: v0 moving")
		expect.OK(s.T, s.Store.AskUnshelve(s.T.Context(), store.Call{}, "web", s.hosts["b"].ID))
		_, err := s.Store.PlanUnshelve(s.T.Context(), "web", "b")
		if api.CodeOf(err) != api.CodeMigrationActive {
			s.T.Errorf("unshelve while it moves: %v", err)
		}
		s.until(id)
		s.movedOnce(1)
		s.want(id, "done: v0 moved")
		s.shelf("b", api.InstanceShelvedOffloaded, api.InstanceShelved)
		if at, err := s.Store.Attachments(s.T.Context(), "", "web", store.Viewer{}); err != nil || len(at) != 1 || at[0].Location != relaytest.Place("slow", "v0") || at[0].Host != "b" {
			s.T.Errorf("attachments = %+v %v", at, err)
		}
	})
}

func TestVolumeThatNoHostCanMoveIsSkippedAndSaysWhy(t *testing.T) {
	bubble(t, func(s *site) {
		s.pools("a", pool("fast", false))
		s.shelved("a")
		s.volume("b", "v1")
		id := s.drain(1)
		s.until(id)
		s.want(id, "done: v0 skipped unsupported_disk, v1 moved")
	})
}

// The only host that reaches both is away: that is no end.
func TestVolumeOfAShelvedInstanceWaitsForItsHost(t *testing.T) {
	bubble(t, func(s *site) {
		s.shelved("a")
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
