// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/memtest"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

func TestMain(m *testing.M) {
	memtest.TempDir()
	goleak.VerifyTestMain(m)
}

// id is a UUID that says what it is the id of: the kind is the first group.
func id(kind string, n int) string { return fmt.Sprintf("%s-0000-4000-8000-%012d", kind, n) }

const (
	hostKind       = "10000000"
	instanceKind   = "20000000"
	volumeKind     = "30000000"
	attachmentKind = "40000000"
	migrationKind  = "50000000"
)

const size = int64(1 << 20)

var (
	hostA = id(hostKind, 1)
	hostB = id(hostKind, 2)
	// web and app are instances of host a, db is one of host b.
	web = id(instanceKind, 1)
	app = id(instanceKind, 2)
	db  = id(instanceKind, 3)
	// root is attached to web by rootAt; data is an available volume on host a; disk is an
	// available multiattach volume in the shared pool nfs; local one on host a.
	root   = id(volumeKind, 1)
	data   = id(volumeKind, 2)
	disk   = id(volumeKind, 3)
	local  = id(volumeKind, 4)
	rootAt = id(attachmentKind, 1)
	// first and next are attachments that tests make, move is a migration.
	first = id(attachmentKind, 21)
	next  = id(attachmentKind, 22)
	move  = id(migrationKind, 1)
)

var (
	nobody   = store.Call{Who: "test"}
	everyone = store.Viewer{}
	cut      = api.HostFence{Evidence: "the power is off", EvenIfUp: true}
	// acceptedBlind accepts a restore that no host has proved.
	acceptedBlind = store.RestoreAcceptance{Evidence: "compared", WithoutProof: true}
)

// as is a call of a daemon, of a host that was never fenced.
func as(host string) store.Call {
	return store.Call{Who: "test", Host: &store.HostToken{ID: host, Epoch: 1}}
}

// at is a place in the pool that is called like its directory.
func at(path string) api.Location {
	return api.Location{Pool: filepath.Base(filepath.Dir(path)), Name: filepath.Base(path), Path: path, Format: api.FormatRaw, SizeBytes: size}
}

func openStore(t *testing.T, path string) *Store {
	t.Helper()
	s := must(Open(t.Context(), path, store.Options{}))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reopenable returns a store, and what closes it and opens it again.
func reopenable(t *testing.T) (s *Store, reopen func() *Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	open := func() *Store { return must(Open(t.Context(), path, store.Options{}))(t) }
	closeStore := func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s = open()
	t.Cleanup(func() { closeStore() })
	return s, func() *Store {
		closeStore()
		s = open()
		return s
	}
}

// later runs f with a site, in a bubble in which pass lets time pass.
func later(t *testing.T, f func(t *testing.T, s *Store, pass func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, newSite(t), func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // fake time
			synctest.Wait()
		})
	})
}

// newSite returns a store with hosts a and b, instance web and the volumes root and data.
func newSite(t *testing.T) *Store {
	t.Helper()
	s := openStore(t, filepath.Join(t.TempDir(), "registry.db"))
	for host, name := range map[string]string{hostA: "a", hostB: "b"} {
		must(s.Report(t.Context(), nobody, api.HostReport{ID: host, Name: name, BootID: "first", Pools: []api.Pool{
			{Name: "fast", Type: "dir", Path: "/fast", Active: true},
			{Name: "slow", Type: "dir", Path: "/slow", Active: true},
			{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true, Shared: true},
		}}))(t)
	}
	zero := 0
	must(s.RegisterInstance(t.Context(), nobody, api.InstanceRegister{
		ID: web, Name: "web", Host: "a", State: api.InstanceRunning,
		Disks: []api.AdoptedDisk{{
			VolumeID: root, VolumeName: "root", AttachmentID: rootAt, Device: "vda", BootIndex: &zero, Mode: api.ModeRW, Location: at("/fast/root"),
		}},
		Slots: []api.BlockDeviceMapping{{Device: "sda", Note: "not a volume: it is a cdrom"}},
	}))(t)
	must(s.RegisterVolume(t.Context(), nobody, api.VolumeRegister{ID: data, Name: "data", Status: api.VolumeAvailable, Host: hostA, Location: at("/fast/data")}))(t)
	return s
}

// newCluster returns newSite with pools that can do multiattach, two more instances, and
// the volumes disk and local.
func newCluster(t *testing.T) *Store {
	t.Helper()
	s := newSite(t)
	for host, name := range map[string]string{hostA: "a", hostB: "b"} {
		must(s.Report(t.Context(), nobody, api.HostReport{ID: host, Name: name, BootID: "first", Pools: clusterPools()}))(t)
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
		{Name: "fast", Type: "dir", Path: "/fast", Active: true, Multiattach: true},
		{Name: "slow", Type: "dir", Path: "/slow", Active: true, Multiattach: true},
		{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true, Shared: true, Multiattach: true},
	}
}

func reportOf(host, name string) api.HostReport {
	return api.HostReport{ID: host, Name: name, BootID: "first", Epoch: 1}
}

// runs reports the state of an instance by a host, whether that has it or not.
func runs(t *testing.T, s *Store, host, name, instance string, state api.InstanceState) {
	t.Helper()
	in := reportOf(host, name)
	in.Instances = []api.InstanceReport{{ID: instance, State: state}}
	must(s.Report(t.Context(), nobody, in))(t)
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

// inTurn runs what brings a site into a state.
func inTurn(steps ...func(*testing.T, *Store)) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		for _, step := range steps {
			step(t, s)
		}
	}
}

func fenceA(t *testing.T, s *Store) {
	t.Helper()
	must(s.FenceHost(t.Context(), nobody, "a", cut))(t)
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

// dataMigration moves data, which nothing is attached to.
func dataMigration() api.MigrationRegister {
	return api.MigrationRegister{
		ID: id(migrationKind, 2), VolumeID: data, Host: hostA, Epoch: 1, Generation: 1, Dst: at("/slow/data"), Method: "offline",
	}
}

// migrating begins the migration move of root.
func migrating(t *testing.T, s *Store) {
	t.Helper()
	moving(rootMigration())(t, s)
}

func step(to api.MigrationState, from ...api.MigrationState) api.MigrationTransition {
	return api.MigrationTransition{From: from, To: to, Host: hostA, Epoch: 1}
}

// progress is a report with how far a migration is.
func progress(host, name, migration string, done int64) api.HostReport {
	in := reportOf(host, name)
	in.Migrations = []api.Migration{{ID: migration, State: api.MigrationCopying, Phase: "copy", BytesDone: done}}
	return in
}

func lastEvent(t *testing.T, s *Store) api.Event {
	t.Helper()
	events := must(s.Events(t.Context(), s.Mark().Seq-1))(t)
	if len(events) != 1 {
		t.Fatalf("events at the end of the trail = %d", len(events))
	}
	return events[0]
}

// must returns what a call that has to succeed returned.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func second[T any](_ T, err error) error { return err }

func wantCode(t *testing.T, err error, code api.Code, text string) {
	t.Helper()
	if api.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("error = %s %v, want %s with %q", api.CodeOf(err), err, code, text)
	}
}

// wantStale expects that a change is refused with the epoch that the registry has.
func wantStale(t *testing.T, err error, epoch int64) {
	t.Helper()
	wantCode(t, err, api.CodeStaleEpoch, "")
	if err != nil && api.AsError(err).Details["epoch"] != epoch {
		t.Errorf("details = %v, want epoch %d", api.AsError(err).Details, epoch)
	}
}

// dump returns every row of every table, so that two states can be compared.
func dump(ctx context.Context, t *testing.T, s *Store) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	tables := must(ledger.ReadAll(ctx, s.Reader(), ledger.ScanString, "SELECT name FROM sqlite_schema WHERE type = 'table'"))(t)
	for _, table := range tables {
		columns := must(ledger.ReadAll(ctx, s.Reader(), ledger.ScanString, "SELECT name FROM pragma_table_info(?)", table))(t)
		scan := func(row ledger.Scanner) (string, error) {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := row.Scan(values...); err != nil {
				return "", err
			}
			b, err := json.Marshal(values)
			return string(b), err
		}
		out[table] = must(ledger.ReadAll(ctx, s.Reader(), scan, "SELECT * FROM "+table+" ORDER BY 1, 2"))(t)
	}
	return out
}

// unchanged runs do and expects that the database is as it was.
func unchanged(t *testing.T, s *Store, do func() error) error {
	t.Helper()
	before := dump(t.Context(), t, s)
	err := do()
	if diff := cmp.Diff(before, dump(t.Context(), t, s)); diff != "" {
		t.Errorf("the database changed (-before +after):\n%s", diff)
	}
	return err
}

// refusal is a request that a rule forbids. Before, where not nil, brings the
// site into the state in which it does.
type refusal struct {
	before func(*testing.T, *Store)
	do     func(*testing.T, *Store) error
	code   api.Code
	text   string
}

// checkClusterRefusals expects that each request is refused on a cluster and changes nothing.
func checkClusterRefusals(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			wantCode(t, unchanged(t, s, func() error { return tc.do(t, s) }), tc.code, tc.text)
		})
	}
}

func moving(ref api.MigrationRegister) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.RegisterMigration(t.Context(), nobody, ref))(t)
	}
}

func rootMigration() api.MigrationRegister {
	return api.MigrationRegister{
		ID: move, VolumeID: root, SrcAttachmentID: rootAt, DstAttachmentID: id(attachmentKind, 2), Host: hostA, Epoch: 1, Generation: 1,
		Dst: at("/slow/root"), Method: "overlay", OpID: "op-1",
	}
}

// diskMigration moves disk, which nothing is attached to.
func diskMigration() api.MigrationRegister {
	in := dataMigration()
	in.VolumeID, in.Dst = disk, at("/slow/disk")
	return in
}

func dataStatus(steps ...api.VolumeStatus) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		from := api.VolumeAvailable
		for _, to := range steps {
			must(s.TransitionVolume(t.Context(), nobody, data, api.VolumeTransition{From: from, To: to}))(t)
			from = to
		}
	}
}

// wantFree expects that nobody holds the place.
func wantFree(t *testing.T, s *Store, l api.Location) {
	t.Helper()
	must(s.RegisterVolume(t.Context(), nobody, api.VolumeRegister{
		ID: id(volumeKind, 77), Name: "probe", Status: api.VolumeCreating, Host: "a", Location: l,
	}))(t)
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

// wantVolume expects the status of a volume and how many attachments it has.
func wantVolume(t *testing.T, s *Store, ref string, status api.VolumeStatus, attachments int) {
	t.Helper()
	if v := must(s.Volume(t.Context(), ref, everyone))(t); v.Status != status || len(v.Attachments) != attachments {
		t.Errorf("volume %s is %s with %d attachments, want %s with %d", v.Name, v.Status, len(v.Attachments), status, attachments)
	}
}

// rawSQL brings a site into a state that the rules keep it from.
func rawSQL(query string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(mutate(t.Context(), s, nobody, "test.sql", query, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
			return none, tx.Exec(ctx, query)
		}))(t)
	}
}
