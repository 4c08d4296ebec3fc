// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/memtest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestMain(m *testing.M) {
	memtest.TempDir()
	goleak.VerifyTestMain(m)
}

var (
	nobody   = store.Call{Who: "test"}
	everyone = store.Viewer{}
	cut      = api.HostFence{Evidence: "the power is off", EvenIfUp: true}
	// acceptedBlind accepts a restore without a proof.
	acceptedBlind = store.RestoreAcceptance{Evidence: "compared", WithoutProof: true}
)

var kit = storetest.Site[*Store, store.Call, store.Viewer]{
	Open: func(ctx context.Context, path string) (*Store, error) { return Open(ctx, path, store.Options{}) },
	Parts: func(s *Store) storetest.Parts[store.Call, store.Viewer] {
		return storetest.Parts[store.Call, store.Viewer]{
			Reports: s.Reports, Hosts: s.Hosts, Instances: s.Instances, Types: s.Types, Policies: s.Policies, Volumes: s.Volumes,
			Migrations: s.Migrations, Attachments: s.Attachments, Marks: s.Marks, Trail: s.Trail,
		}
	},
	Nobody: nobody,
}

// Short names for storetest.
const size = storetest.Size

var (
	id, at = storetest.ID, storetest.At

	hostA, hostB            = storetest.HostA, storetest.HostB
	web, app, db            = storetest.Web, storetest.App, storetest.DB
	root, data, disk        = storetest.Root, storetest.Data, storetest.Disk
	rootAt                  = storetest.RootAt
	first, next, move       = storetest.First, storetest.Next, storetest.Move
	clusterPools, step      = storetest.ClusterPools, storetest.MigrationStep
	rootMigration           = storetest.RootMigration
	dataMigration           = storetest.DataMigration
	diskMigration           = storetest.DiskMigration
	reserve, atDB, atWeb    = storetest.Reserve, storetest.AtDB, storetest.AtWeb
	attachmentStep, release = storetest.AttachmentStep, storetest.Release
	dump, unchanged         = storetest.Dump, storetest.Unchanged
	wantCode, wantStale     = expect.Code, storetest.WantStale

	reopenable                 = kit.Reopenable
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

// as returns a call of the daemon of a host that was never fenced.
func as(host string) store.Call {
	return store.Call{Who: "test", Host: &store.HostToken{ID: host, Epoch: 1}}
}

// later runs f with a site in a bubble; pass advances the fake time.
func later(t *testing.T, f func(t *testing.T, s *Store, pass func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, newSite(t), func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // fake time
			synctest.Wait()
		})
	})
}

func reportOf(host, name string) api.HostReport {
	return api.HostReport{ID: host, Name: name, BootID: "first", Epoch: 1}
}

// runs makes a host report the state of an instance, whether it has it or not.
func runs(t *testing.T, s *Store, host, name, instance string, state api.InstanceState) {
	t.Helper()
	in := reportOf(host, name)
	in.Instances = []api.InstanceReport{{ID: instance, State: state}}
	must(s.Reports.Receive(t.Context(), nobody, in))(t)
}

// progress returns a report with the progress of a migration.
func progress(host, name, migration string, done int64) api.HostReport {
	in := reportOf(host, name)
	in.Migrations = []api.Migration{{ID: migration, State: api.MigrationCopying, Phase: "copy", BytesDone: done}}
	return in
}

// refusal is a request that a rule forbids. before, if not nil, brings the site into the necessary
// state.
type refusal struct {
	before func(*testing.T, *Store)
	do     func(*testing.T, *Store) error
	code   api.Code
	text   string
}

// checkClusterRefusals requires that each request is refused on a cluster and changes nothing.
func checkClusterRefusals(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kit.WantRefused(t, newCluster(t), tc.before, tc.do, tc.code, tc.text)
		})
	}
}

// rawSQL brings a site into a state that the rules prevent.
func rawSQL(query string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(mutate(t.Context(), s.DB, nobody, "test.sql", query, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
			return none, tx.Exec(ctx, query)
		}))(t)
	}
}
