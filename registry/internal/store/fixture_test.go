// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/memtest"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestMain(m *testing.M) {
	runVictim()
	runLimited()
	memtest.TempDir()
	goleak.VerifyTestMain(m)
}

var nobody = Call{Who: "test"}

// everyone is an operator's view.
var everyone = Viewer{}

var kit = storetest.Site[*Store, Call, Viewer]{
	Open: func(ctx context.Context, path string) (*Store, error) { return Open(ctx, path, Options{}) },
	Parts: func(s *Store) storetest.Parts[Call, Viewer] {
		return storetest.Parts[Call, Viewer]{
			Reports: s.Reports, Hosts: s.Hosts, Instances: s.Instances, Types: s.Types, Policies: s.Policies, Volumes: s.Volumes,
			Migrations: s.Migrations, Attachments: s.Attachments, Marks: s.Marks, Trail: s.Trail,
		}
	},
	Nobody: nobody,
}

// Short names for storetest.
var (
	id, at = storetest.ID, storetest.At

	hostA, hostB            = storetest.HostA, storetest.HostB
	web, app, db            = storetest.Web, storetest.App, storetest.DB
	root, data, disk, local = storetest.Root, storetest.Data, storetest.Disk, storetest.Local
	rootAt, rootTo          = storetest.RootAt, storetest.RootTo
	first, next, move       = storetest.First, storetest.Next, storetest.Move
	clusterPools, step      = storetest.ClusterPools, storetest.MigrationStep
	rootMigration           = storetest.RootMigration
	dataMigration           = storetest.DataMigration
	diskMigration           = storetest.DiskMigration
	reserve, atDB, atWeb    = storetest.Reserve, storetest.AtDB, storetest.AtWeb
	attachmentStep, release = storetest.AttachmentStep, storetest.Release
	dump, unchanged         = storetest.Dump, storetest.Unchanged
	wantCode, wantStale     = expect.Code, storetest.WantStale

	openStore, reopenable      = kit.OpenStore, kit.Reopenable
	newSite, newCluster        = kit.New, kit.NewCluster
	inTurn, reserved, attached = kit.InTurn, kit.Reserved, kit.Attached
	moving, migrating          = kit.Moving, kit.Migrating
	dataStatus, policy, fenceA = kit.DataStatus, kit.Policy, kit.FenceA
	instanceState              = kit.InstanceState
	lockedInstance             = kit.LockedInstance
	stoppedWithoutRoot         = kit.StoppedWithoutRoot
	wantFree, wantVolume       = kit.WantFree, kit.WantVolume
	lastEvent                  = kit.LastEvent
)

const (
	hostKind       = storetest.HostKind
	instanceKind   = storetest.InstanceKind
	volumeKind     = storetest.VolumeKind
	attachmentKind = storetest.AttachmentKind
	migrationKind  = storetest.MigrationKind
)

func must[T any](v T, err error) func(testing.TB) T { return expect.Value(v, err) }

func second[T any](_ T, err error) error { return err }

// openWith is openStore with options.
func openWith(t *testing.T, path string, o Options) *Store {
	t.Helper()
	with := kit
	with.Open = func(ctx context.Context, path string) (*Store, error) { return Open(ctx, path, o) }
	return with.OpenStore(t, path)
}

func newStore(t *testing.T) *Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "registry.db"))
}

// reportOfFast returns a report of host a with the pool fast.
func reportOfFast() api.HostReport {
	r := reportOf(hostA, "a", 1)
	r.Pools = []api.Pool{{Name: "fast", Type: "dir", Path: "/fast", Active: true}}
	return r
}
