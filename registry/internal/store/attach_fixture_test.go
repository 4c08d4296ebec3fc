// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

var (
	// app is a second instance of host a, db one of host b.
	app = id(instanceKind, 2)
	db  = id(instanceKind, 3)
	// disk is an available volume of the multiattach type gold in the shared pool
	// nfs; local one in the pool fast of host a.
	disk  = id(volumeKind, 3)
	local = id(volumeKind, 4)
	// first and next are attachments that tests make.
	first = id(attachmentKind, 21)
	next  = id(attachmentKind, 22)
)

// newCluster returns newSite with pools that can do multiattach (fast, and nfs
// which both hosts share) and one that cannot (thin), two more instances, and two
// multiattach volumes.
func newCluster(t *testing.T) *Store {
	t.Helper()
	s := newSite(t)
	for n, name := range []string{"a", "b"} {
		must(s.Report(t.Context(), nobody, api.HostReport{ID: id(hostKind, n+1), Name: name, BootID: "first", Pools: clusterPools()}))(t)
	}
	for _, i := range []api.InstanceRegister{{ID: app, Name: "app", Host: "a"}, {ID: db, Name: "db", Host: "b"}} {
		i.State = api.InstanceRunning
		must(s.RegisterInstance(t.Context(), nobody, i))(t)
	}
	must(s.CreateType(t.Context(), nobody, api.VolumeTypeCreate{Name: "gold", Multiattach: true}))(t)
	for volume, in := range map[string]api.VolumeRegister{disk: {Name: "disk", Location: at("/nfs/disk")}, local: {Name: "local", Location: at("/fast/local")}} {
		in.ID, in.Host, in.Type, in.Status = volume, "a", "gold", api.VolumeAvailable
		must(s.RegisterVolume(t.Context(), nobody, in))(t)
	}
	return s
}

func clusterPools() []api.Pool {
	return []api.Pool{
		{Name: "fast", Type: "dir", Path: "/fast", Active: true, Multiattach: true, CapacityBytes: 100, FreeBytes: 50},
		{Name: "slow", Type: "dir", Path: "/slow", Active: true, Multiattach: true, CapacityBytes: 100, FreeBytes: 60},
		{Name: "thin", Type: "logical", Path: "/thin", Active: true, CapacityBytes: 100, FreeBytes: 90},
		{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true, Shared: true, Multiattach: true, CapacityBytes: 100, FreeBytes: 10},
	}
}

// reserve is a request for disk at app, with a change.
func reserve(edit func(*api.AttachmentReserve)) api.AttachmentReserve {
	in := api.AttachmentReserve{
		ID: first, VolumeID: disk, InstanceID: app, Device: "vdb", Mode: api.ModeRW, Host: hostA, Epoch: 1, Generation: 1, OpID: "op-a",
	}
	if edit != nil {
		edit(&in)
	}
	return in
}

// atDB makes a request one for db, which is on host b.
func atDB(in *api.AttachmentReserve) {
	in.ID, in.InstanceID, in.Host = next, db, hostB
}

// atWeb makes a request one for web, which is on host a as app is.
func atWeb(in *api.AttachmentReserve) { in.ID, in.InstanceID = next, web }

func reserved(edit func(*api.AttachmentReserve)) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.ReserveAttachment(t.Context(), nobody, reserve(edit)))(t)
	}
}

// inTurn runs what brings a site into a state.
func inTurn(steps ...func(*testing.T, *Store)) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		for _, step := range steps {
			step(t, s)
		}
	}
}

func attachmentStep(to api.AttachmentState, from ...api.AttachmentState) api.AttachmentTransition {
	return api.AttachmentTransition{From: from, To: to, Host: hostA, Epoch: 1, OpID: "op-" + string(to)}
}

// attached is reserved and the way from there to attached.
func attached(edit func(*api.AttachmentReserve)) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		in := reserve(edit)
		reserved(edit)(t, s)
		for _, step := range []api.AttachmentTransition{
			attachmentStep(api.AttachmentAttaching, api.AttachmentReserved), attachmentStep(api.AttachmentAttached, api.AttachmentAttaching),
		} {
			step.Host = in.Host
			must(s.TransitionAttachment(t.Context(), nobody, in.ID, step))(t)
		}
	}
}

func release(force bool) api.AttachmentRelease {
	return api.AttachmentRelease{Host: hostA, Epoch: 1, OpID: "op-r", Force: force}
}

func policy(name string, on bool) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.SetPolicy(t.Context(), nobody, name, api.PolicyUpdate{Enabled: on}))(t)
	}
}

func fenceA(t *testing.T, s *Store) {
	t.Helper()
	must(s.FenceHost(t.Context(), nobody, "a", api.HostFence{Evidence: "its plug is in my hand", EvenIfUp: true}))(t)
}

func instanceState(state api.InstanceState, instances ...string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		report := api.HostReport{ID: hostA, Name: "a", BootID: "first", Pools: clusterPools()}
		for _, i := range instances {
			report.Instances = append(report.Instances, api.InstanceReport{ID: i, State: state})
		}
		must(s.Report(t.Context(), nobody, report))(t)
	}
}

// wantVolume expects the status of a volume and how many attachments it has.
func wantVolume(t *testing.T, s *Store, ref string, status api.VolumeStatus, attachments int) {
	t.Helper()
	if v := must(s.Volume(t.Context(), ref, everyone))(t); v.Status != status || len(v.Attachments) != attachments {
		t.Errorf("volume %s is %s with %d attachments, want %s with %d", v.Name, v.Status, len(v.Attachments), status, attachments)
	}
}

// onShelf leaves an instance in a state that the workflow of the shelf brings it into.
func onShelf(state api.InstanceState, instance string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(Mutate(t.Context(), s, nobody, "test.shelve", nil, func(ctx context.Context, tx *Tx) (none struct{}, err error) {
			return none, tx.Exec(ctx, "UPDATE instances SET state = ? WHERE id = ?", state, instance)
		}))(t)
	}
}

func shelved(instance string) func(*testing.T, *Store) { return onShelf(api.InstanceShelved, instance) }

func offloaded(instance string) func(*testing.T, *Store) {
	return onShelf(api.InstanceShelvedOffloaded, instance)
}

func lockedInstance(instance string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.LockInstance(t.Context(), nobody, instance, api.InstanceLock{Reason: "audit"}))(t)
	}
}

// stoppedWithoutRoot stops web and takes its root volume.
func stoppedWithoutRoot(t *testing.T, s *Store) {
	t.Helper()
	instanceState(api.InstanceStopped, web)(t, s)
	in := release(true)
	in.Slot = &api.SlotDefinition{Disk: "<disk><target dev='vda' bus='virtio'/></disk>", SerialOfVolume: true}
	must(s.ReleaseAttachment(t.Context(), nobody, rootAt, in))(t)
}
