// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/memtest"
	"github.com/volferry/volferry/registry/internal/ledger"
)

func TestMain(m *testing.M) {
	runVictim()
	runLimited()
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
	// web has the attached volume root, on host a; data is an available volume
	// there.
	web  = id(instanceKind, 1)
	root = id(volumeKind, 1)
	data = id(volumeKind, 2)
	// rootAt is the attachment of root, rootTo the one of its migration.
	rootAt = id(attachmentKind, 1)
	rootTo = id(attachmentKind, 2)
	move   = id(migrationKind, 1)
)

var nobody = Call{Who: "test"}

// everyone sees everything.
var everyone = Viewer{}

// at is a place in the pool that is called like its directory.
func at(path string) api.Location {
	return api.Location{Pool: filepath.Base(filepath.Dir(path)), Name: filepath.Base(path), Path: path, Format: api.FormatRaw, SizeBytes: size}
}

func newStore(t *testing.T) *Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "registry.db"), Options{})
}

func openStore(t *testing.T, path string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
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
	open := func() *Store { return must(Open(t.Context(), path, Options{}))(t) }
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

// newSite returns a store with hosts a and b, instance web and the volumes
// root and data.
func newSite(t *testing.T) *Store {
	t.Helper()
	s := newStore(t)
	for n, name := range []string{"a", "b"} {
		must(s.Report(t.Context(), nobody, api.HostReport{
			ID: id(hostKind, n+1), Name: name, BootID: "first",
			Pools: []api.Pool{
				{Name: "fast", Type: "dir", Path: "/fast", Active: true, CapacityBytes: 100, FreeBytes: 50},
				{Name: "slow", Type: "dir", Path: "/slow", Active: true, CapacityBytes: 100, FreeBytes: 50},
				{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true, Shared: true},
			},
		}))(t)
	}
	must(s.RegisterInstance(t.Context(), nobody, webRegister()))(t)
	must(s.RegisterVolume(t.Context(), nobody, dataRegister()))(t)
	return s
}

// reportOfFast is a report of host a, which has the pool fast.
func reportOfFast() api.HostReport {
	r := reportOf(hostA, "a", 1)
	r.Pools = []api.Pool{{Name: "fast", Type: "dir", Path: "/fast", Active: true}}
	return r
}

func webRegister() api.InstanceRegister {
	zero := 0
	return api.InstanceRegister{
		ID: web, Name: "web", Host: "a", State: api.InstanceRunning,
		Disks: []api.AdoptedDisk{{
			VolumeID: root, VolumeName: "root", AttachmentID: rootAt, Device: "vda", BootIndex: &zero, Mode: api.ModeRW, Location: at("/fast/root"),
		}},
		Slots: []api.BlockDeviceMapping{{Device: "sda", Note: "not a volume: it is a cdrom"}},
	}
}

func dataRegister() api.VolumeRegister {
	return api.VolumeRegister{ID: data, Name: "data", Status: api.VolumeAvailable, Host: hostA, Location: at("/fast/data")}
}

func rootMigration() api.MigrationRegister {
	return api.MigrationRegister{
		ID: move, VolumeID: root, SrcAttachmentID: rootAt, DstAttachmentID: rootTo, Host: hostA, Epoch: 1, Generation: 1,
		Dst: at("/slow/root"), Method: "overlay", OpID: "op-1",
	}
}

func dataMigration() api.MigrationRegister {
	return api.MigrationRegister{
		ID: id(migrationKind, 2), VolumeID: data, Host: hostA, Epoch: 1, Generation: 1, Dst: at("/slow/data"), Method: "offline",
	}
}

func step(to api.MigrationState, from ...api.MigrationState) api.MigrationTransition {
	return api.MigrationTransition{From: from, To: to, Host: hostA, Epoch: 1}
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

func wantCode(t *testing.T, err error, code api.Code, text string) {
	t.Helper()
	if api.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("error = %s %v, want %s with %q", api.CodeOf(err), err, code, text)
	}
}

// dump returns every row of every table, so that two states can be compared.
func dump(ctx context.Context, t *testing.T, s *Store) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	tables := must(ledger.QueryAll(ctx, s.db.Read, ledger.ScanString, "SELECT name FROM sqlite_schema WHERE type = 'table'"))(t)
	for _, table := range tables {
		columns := must(ledger.QueryAll(ctx, s.db.Read, ledger.ScanString, "SELECT name FROM pragma_table_info(?)", table))(t)
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
		out[table] = must(ledger.QueryAll(ctx, s.db.Read, scan, "SELECT * FROM "+table+" ORDER BY 1, 2"))(t)
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
