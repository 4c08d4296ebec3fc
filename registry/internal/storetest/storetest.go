// SPDX-License-Identifier: Apache-2.0

// Package storetest fills a registry's database for the tests of package store and packages above:
// two hosts that share a pool, their instances and volumes, and common requests. It uses a store
// through an interface, so that internal tests can import it.
package storetest

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// Store is an open registry.
type Store interface {
	Reader() *sql.DB
	Close() error
}

// Parts are the parts of a registry with calls of type C and viewers of type V that fill it.
type Parts[C, V any] struct {
	Reports interface {
		Receive(ctx context.Context, call C, in api.HostReport) (api.Host, error)
	}
	Hosts interface {
		Fence(ctx context.Context, call C, ref string, in api.HostFence) (api.Host, error)
	}
	Instances interface {
		Register(ctx context.Context, call C, in api.InstanceRegister) (api.Instance, error)
		Lock(ctx context.Context, call C, ref string, in api.InstanceLock) (api.Instance, error)
	}
	Types interface {
		Create(ctx context.Context, call C, in api.VolumeTypeCreate) (api.VolumeType, error)
	}
	Policies interface {
		Set(ctx context.Context, call C, name string, in api.PolicyUpdate) (api.Policy, error)
	}
	Volumes interface {
		Register(ctx context.Context, call C, in api.VolumeRegister) (api.Volume, error)
		Transition(ctx context.Context, call C, ref string, in api.VolumeTransition) (api.Volume, error)
		Get(ctx context.Context, ref string, viewer V) (api.Volume, error)
	}
	Migrations interface {
		Register(ctx context.Context, call C, in api.MigrationRegister) (api.Migration, error)
	}
	Attachments interface {
		Reserve(ctx context.Context, call C, in api.AttachmentReserve) (api.Attachment, error)
		Transition(ctx context.Context, call C, ref string, in api.AttachmentTransition) (api.Attachment, error)
		Release(ctx context.Context, call C, ref string, in api.AttachmentRelease) (api.Attachment, error)
	}
	Marks interface{ Now() api.RegistryMark }
	Trail interface {
		Events(ctx context.Context, since int64) ([]api.Event, error)
	}
}

// Site makes stores of type S in various states.
type Site[S Store, C, V any] struct {
	// Open opens the store with the database at path.
	Open func(ctx context.Context, path string) (S, error)
	// Parts returns the parts of a store.
	Parts func(S) Parts[C, V]
	// Nobody is the caller of all requests.
	Nobody C
}

// OpenStore opens a store, and closes it at the end of the test.
func (k Site[S, C, V]) OpenStore(t *testing.T, path string) S {
	t.Helper()
	s := expect.Value(k.Open(t.Context(), path))(t)
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t *testing.T, s interface{ Close() error }) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Reopenable returns a store, and a function that closes and reopens it.
func (k Site[S, C, V]) Reopenable(t *testing.T) (s S, reopen func() S) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	s = expect.Value(k.Open(t.Context(), path))(t)
	t.Cleanup(func() { closeStore(t, s) })
	return s, func() S {
		closeStore(t, s)
		s = expect.Value(k.Open(t.Context(), path))(t)
		return s
	}
}

// New returns a store with hosts a and b, instance web and the volumes root and data.
func (k Site[S, C, V]) New(t *testing.T) S {
	t.Helper()
	s := k.OpenStore(t, filepath.Join(t.TempDir(), "registry.db"))
	k.report(t, s, []api.Pool{
		{Name: "fast", Type: "dir", Path: "/fast", Active: true, CapacityBytes: 100, FreeBytes: 50},
		{Name: "slow", Type: "dir", Path: "/slow", Active: true, CapacityBytes: 100, FreeBytes: 50},
		{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true, Shared: true},
	})
	expect.Value(k.Parts(s).Instances.Register(t.Context(), k.Nobody, WebRegister()))(t)
	expect.Value(k.Parts(s).Volumes.Register(t.Context(), k.Nobody, DataRegister()))(t)
	return s
}

func (k Site[S, C, V]) report(t *testing.T, s S, pools []api.Pool) {
	t.Helper()
	for n, name := range []string{"a", "b"} {
		expect.Value(k.Parts(s).Reports.Receive(t.Context(), k.Nobody, api.HostReport{ID: ID(HostKind, n+1), Name: name, BootID: "first", Pools: pools}))(t)
	}
}

// NewCluster is New with pools that can do multiattach (fast, and the shared nfs), a pool that
// cannot (thin), two more instances, and two multiattach volumes.
func (k Site[S, C, V]) NewCluster(t *testing.T) S {
	t.Helper()
	s := k.New(t)
	k.report(t, s, ClusterPools())
	for _, i := range []api.InstanceRegister{{ID: App, Name: "app", Host: "a"}, {ID: DB, Name: "db", Host: "b"}} {
		i.State = api.InstanceRunning
		expect.Value(k.Parts(s).Instances.Register(t.Context(), k.Nobody, i))(t)
	}
	expect.Value(k.Parts(s).Types.Create(t.Context(), k.Nobody, api.VolumeTypeCreate{Name: "gold", Multiattach: true}))(t)
	for volume, in := range map[string]api.VolumeRegister{Disk: {Name: "disk", Location: At("/nfs/disk")}, Local: {Name: "local", Location: At("/fast/local")}} {
		in.ID, in.Host, in.Type, in.Status = volume, "a", "gold", api.VolumeAvailable
		expect.Value(k.Parts(s).Volumes.Register(t.Context(), k.Nobody, in))(t)
	}
	return s
}

// Available registers an available volume and returns its id.
func (k Site[S, C, V]) Available(t *testing.T, s S, host, name, volumeType string, at api.Location) string {
	t.Helper()
	v := api.VolumeRegister{ID: NamedID(VolumeKind, name), Name: name, Status: api.VolumeAvailable, Type: volumeType, Host: host, Location: at}
	return expect.Value(k.Parts(s).Volumes.Register(t.Context(), k.Nobody, v))(t).ID
}

// Running registers a running instance without disks and returns its id.
func (k Site[S, C, V]) Running(t *testing.T, s S, host, name string) string {
	t.Helper()
	i := api.InstanceRegister{ID: NamedID(InstanceKind, name), Name: name, Host: host, State: api.InstanceRunning}
	return expect.Value(k.Parts(s).Instances.Register(t.Context(), k.Nobody, i))(t).ID
}

// Attach reserves an attachment and makes it attached.
func (k Site[S, C, V]) Attach(t *testing.T, s S, in api.AttachmentReserve) {
	t.Helper()
	expect.Value(k.Parts(s).Attachments.Reserve(t.Context(), k.Nobody, in))(t)
	for _, step := range []api.AttachmentTransition{
		AttachmentStep(api.AttachmentAttaching, api.AttachmentReserved), AttachmentStep(api.AttachmentAttached, api.AttachmentAttaching),
	} {
		step.Host = in.Host
		expect.Value(k.Parts(s).Attachments.Transition(t.Context(), k.Nobody, in.ID, step))(t)
	}
}

// InTurn returns a function that runs setup functions in order.
func (k Site[S, C, V]) InTurn(steps ...func(*testing.T, S)) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		for _, step := range steps {
			step(t, s)
		}
	}
}

// Reserved returns a setup function that makes a reservation (Reserve).
func (k Site[S, C, V]) Reserved(edit func(*api.AttachmentReserve)) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		expect.Value(k.Parts(s).Attachments.Reserve(t.Context(), k.Nobody, Reserve(edit)))(t)
	}
}

// Attached is Reserved, and then makes the attachment attached.
func (k Site[S, C, V]) Attached(edit func(*api.AttachmentReserve)) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		k.Attach(t, s, Reserve(edit))
	}
}

// Moving returns a setup function that registers a migration.
func (k Site[S, C, V]) Moving(in api.MigrationRegister) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		expect.Value(k.Parts(s).Migrations.Register(t.Context(), k.Nobody, in))(t)
	}
}

// Migrating registers the migration of root.
func (k Site[S, C, V]) Migrating(t *testing.T, s S) {
	t.Helper()
	k.Moving(RootMigration())(t, s)
}

// DataStatus returns a setup function that takes volume data through these statuses.
func (k Site[S, C, V]) DataStatus(steps ...api.VolumeStatus) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		from := api.VolumeAvailable
		for _, to := range steps {
			expect.Value(k.Parts(s).Volumes.Transition(t.Context(), k.Nobody, Data, api.VolumeTransition{From: from, To: to}))(t)
			from = to
		}
	}
}

// Policy returns a setup function that turns a policy on or off.
func (k Site[S, C, V]) Policy(name string, on bool) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		expect.Value(k.Parts(s).Policies.Set(t.Context(), k.Nobody, name, api.PolicyUpdate{Enabled: on}))(t)
	}
}

// FenceA fences host a.
func (k Site[S, C, V]) FenceA(t *testing.T, s S) {
	t.Helper()
	expect.Value(k.Parts(s).Hosts.Fence(t.Context(), k.Nobody, "a", api.HostFence{Evidence: "the power is off", EvenIfUp: true}))(t)
}

// InstanceState returns a setup function that makes host a report instances in this state.
func (k Site[S, C, V]) InstanceState(state api.InstanceState, instances ...string) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		report := api.HostReport{ID: HostA, Name: "a", BootID: "first", Pools: ClusterPools()}
		for _, i := range instances {
			report.Instances = append(report.Instances, api.InstanceReport{ID: i, State: state})
		}
		expect.Value(k.Parts(s).Reports.Receive(t.Context(), k.Nobody, report))(t)
	}
}

// LockedInstance returns a setup function that locks an instance.
func (k Site[S, C, V]) LockedInstance(instance string) func(*testing.T, S) {
	return func(t *testing.T, s S) {
		t.Helper()
		expect.Value(k.Parts(s).Instances.Lock(t.Context(), k.Nobody, instance, api.InstanceLock{Reason: "audit"}))(t)
	}
}

// StoppedWithoutRoot stops web and detaches its root volume.
func (k Site[S, C, V]) StoppedWithoutRoot(t *testing.T, s S) {
	t.Helper()
	k.InstanceState(api.InstanceStopped, Web)(t, s)
	in := Release(true)
	in.Slot = &RootSlot
	expect.Value(k.Parts(s).Attachments.Release(t.Context(), k.Nobody, RootAt, in))(t)
}

// WantRefused runs before, if not nil, and requires that do then returns an error with this code
// and text and does not change the database.
func (k Site[S, C, V]) WantRefused(t *testing.T, s S, before func(*testing.T, S), do func(*testing.T, S) error, code api.Code, text string) {
	t.Helper()
	if before != nil {
		before(t, s)
	}
	expect.Code(t, Unchanged(t, s, func() error { return do(t, s) }), code, text)
}

// WantFree requires that the location is not taken.
func (k Site[S, C, V]) WantFree(t *testing.T, s S, l api.Location) {
	t.Helper()
	expect.Value(k.Parts(s).Volumes.Register(t.Context(), k.Nobody, api.VolumeRegister{
		ID: ID(VolumeKind, 77), Name: "probe", Status: api.VolumeCreating, Host: "a", Location: l,
	}))(t)
}

// WantVolume requires this status and number of attachments of a volume.
func (k Site[S, C, V]) WantVolume(t *testing.T, s S, ref string, status api.VolumeStatus, attachments int) {
	t.Helper()
	var everyone V
	if v := expect.Value(k.Parts(s).Volumes.Get(t.Context(), ref, everyone))(t); v.Status != status || len(v.Attachments) != attachments {
		t.Errorf("volume %s is %s with %d attachments, want %s with %d", v.Name, v.Status, len(v.Attachments), status, attachments)
	}
}

// LastEvent returns the newest event of the audit trail.
func (k Site[S, C, V]) LastEvent(t *testing.T, s S) api.Event {
	t.Helper()
	events := expect.Value(k.Parts(s).Trail.Events(t.Context(), k.Parts(s).Marks.Now().Seq-1))(t)
	if len(events) != 1 {
		t.Fatalf("events at the end of the trail = %d", len(events))
	}
	return events[0]
}
