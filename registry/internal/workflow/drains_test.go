// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/store"
)

var toNFS = api.PoolDrain{ToPool: "nfs", Parallel: 2}

// drainSite returns a site with the volumes root and data of host a and more of host b in pool
// fast, and its drain.
func drainSite(t *testing.T) (*Store, api.Drain) {
	t.Helper()
	s := newSite(t)
	addVolume(t, s, "more", "b", "/fast/more")
	return s, must(s.Drains.Create(t.Context(), nobody, "fast", toNFS))(t)
}

var addedID = map[string]string{"more": id(volumeKind, 50), "late": id(volumeKind, 51)}

func addVolume(t *testing.T, s *Store, name, host, path string) {
	t.Helper()
	must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{
		ID: addedID[name], Name: name, Status: api.VolumeAvailable, Host: host, Location: at(path),
	}))(t)
}

func deleteVolume(t *testing.T, s *Store, name string) {
	t.Helper()
	must(s.Volumes.Transition(t.Context(), nobody, name, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeDeleting}))(t)
	must(s.Volumes.Forget(t.Context(), nobody, name))(t)
}

// lines returns the states of a drain's volumes, by name.
func lines(t *testing.T, s *Store, drain string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, v := range must(s.Drains.Get(t.Context(), drain))(t).Volumes {
		out[v.VolumeName] = v.State
	}
	return out
}

func wantLines(t *testing.T, s *Store, drain string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, lines(t, s, drain)); diff != "" {
		t.Errorf("volumes of the drain (-want +got):\n%s", diff)
	}
}

// set sets the state of a volume of a drain.
func set(t *testing.T, s *Store, drain, volume, state string) error {
	t.Helper()
	return s.Drains.SetVolume(t.Context(), nobody, drain, api.DrainVolume{VolumeID: volume, State: state})
}

func mustSet(t *testing.T, s *Store, drain, volume string, states ...string) {
	t.Helper()
	for _, state := range states {
		if err := set(t, s, drain, volume, state); err != nil {
			t.Fatal(err)
		}
	}
}

// moveData moves volume data to pool slow, as its host would.
func moveData(t *testing.T, s *Store) {
	t.Helper()
	m := must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleting, api.MigrationStarting)))(t)
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleted, api.MigrationCompleting)))(t)
}

func TestADrainHasALineForEveryVolumeOfThePoolOnEveryHost(t *testing.T) {
	s, d := drainSite(t)
	if d.State != api.DrainRunning || d.Pool != "fast" || d.ToPool != "nfs" || d.Parallel != 2 || d.BytesTotal != 3*size || d.BytesDone != 0 || d.FinishedAt != nil {
		t.Errorf("drain = %+v", d)
	}
	want := []api.DrainVolume{
		{VolumeID: data, VolumeName: "data", SizeBytes: size, Host: "a", State: api.DrainVolumePending},
		{VolumeID: addedID["more"], VolumeName: "more", SizeBytes: size, Host: "b", State: api.DrainVolumePending},
		{VolumeID: root, VolumeName: "root", SizeBytes: size, Host: "a", State: api.DrainVolumePending},
	}
	if diff := cmp.Diff(want, d.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if e := lastEvent(t, s); e.What != "drain.create" || e.Object != "drain/"+d.ID || e.Details["pool"] != "fast" {
		t.Errorf("event = %+v", e)
	}
	if diff := cmp.Diff(d, must(s.Drains.Get(t.Context(), d.ID[:8]))(t)); diff != "" {
		t.Errorf("drain by the beginning of its id (-created +read):\n%s", diff)
	}
	if all := must(s.Drains.All(t.Context()))(t); len(all) != 1 || cmp.Diff(d, all[0]) != "" {
		t.Errorf("drains = %+v", all)
	}
}

func TestDrainsThatAreRefused(t *testing.T) {
	s, d := drainSite(t)
	for name, tc := range map[string]struct {
		pool string
		in   api.PoolDrain
		code api.Code
	}{
		"a second one of the pool": {"fast", toNFS, api.CodeConflict},
		"to itself":                {"nfs", api.PoolDrain{ToPool: "nfs"}, api.CodeInvalidArgument},
		"of no pool":               {"", toNFS, api.CodeInvalidArgument},
		"to no pool":               {"fast", api.PoolDrain{}, api.CodeInvalidArgument},
		"of an unknown pool":       {"lost", toNFS, api.CodeNotFound},
		"to an unknown pool":       {"nfs", api.PoolDrain{ToPool: "lost"}, api.CodeNotFound},
		"65 at once":               {"nfs", api.PoolDrain{ToPool: "fast", Parallel: 65}, api.CodeInvalidArgument},
		"-1 at once":               {"nfs", api.PoolDrain{ToPool: "fast", Parallel: -1}, api.CodeInvalidArgument},
		"verify what there is not": {"nfs", api.PoolDrain{ToPool: "fast", Verify: "half"}, api.CodeInvalidArgument},
		"to lose what is unread":   {"nfs", api.PoolDrain{ToPool: "fast", Verify: api.VerifyNone, DeleteSource: true}, api.CodeInvalidArgument},
		"a negative bandwidth":     {"nfs", api.PoolDrain{ToPool: "fast", BandwidthBytesPerSecond: -1}, api.CodeInvalidArgument},
	} {
		err := unchanged(t, s, func() error { return second(s.Drains.Create(t.Context(), nobody, tc.pool, tc.in)) })
		if api.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
	_, err := s.Drains.Create(t.Context(), nobody, "fast", toNFS)
	wantCode(t, err, api.CodeConflict, d.ID)
	if api.AsError(err).Details["drain_id"] != d.ID {
		t.Errorf("details = %v", api.AsError(err).Details)
	}
	if other := must(s.Drains.Create(t.Context(), nobody, "nfs", api.PoolDrain{ToPool: "fast"}))(t); other.Parallel != 1 {
		t.Errorf("drain = %+v, want one at a time", other)
	}
}

func TestOfConcurrentDrainsOfAPoolOneWins(t *testing.T) {
	s := newSite(t)
	first := store.Call{Who: "test", Key: "key-1"}
	d := must(s.Drains.Create(t.Context(), first, "fast", toNFS))(t)
	if again := must(s.Drains.Create(t.Context(), first, "fast", toNFS))(t); again.ID != d.ID {
		t.Errorf("the same request made another drain, %s", again.ID)
	}
	err := second(mutate(t.Context(), s.DB, nobody, "drain", nil, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
		return none, second(tx.ExecContext(ctx, "INSERT INTO drains (id, pool, to_pool, parallel, bandwidth_bytes_per_second, delete_source, state, started_us) SELECT 'x', pool, to_pool, parallel, 0, 0, 'paused', 1 FROM drains"))
	}))
	if !sqlitedb.Violates(err, "drains.pool") {
		t.Errorf("the index lets two drains of a pool be open: %v", err)
	}
}

func TestTheStatesOfADrain(t *testing.T) {
	for _, tc := range []struct {
		path []string
		code api.Code // of the last one
	}{
		{[]string{api.DrainPaused, api.DrainRunning, api.DrainPaused, api.DrainStopped}, ""},
		{[]string{api.DrainStopped, api.DrainStopped}, ""},
		{[]string{api.DrainStopped, api.DrainRunning}, api.CodeStateForbidden},
		{[]string{api.DrainStopped, api.DrainPaused}, api.CodeStateForbidden},
		{[]string{api.DrainDone}, api.CodeInvalidArgument},
		{[]string{"dancing"}, api.CodeInvalidArgument},
	} {
		t.Run(fmt.Sprint(tc.path), func(t *testing.T) {
			s, d := drainSite(t)
			var err error
			for i, to := range tc.path {
				var got api.Drain
				if got, err = s.Drains.SetState(t.Context(), nobody, d.ID, to); err == nil && got.State != to {
					t.Errorf("state = %s, want %s", got.State, to)
				}
				if i < len(tc.path)-1 && err != nil {
					t.Fatal(err)
				}
			}
			if api.CodeOf(err) != tc.code {
				t.Errorf("error = %v, want %s", err, tc.code)
			}
		})
	}
	s, d := drainSite(t)
	if got := must(s.Drains.SetState(t.Context(), nobody, d.ID, api.DrainStopped))(t); got.FinishedAt == nil {
		t.Errorf("drain = %+v", got)
	}
	if e := lastEvent(t, s); e.What != "drain.state" || e.From != api.DrainRunning || e.To != api.DrainStopped {
		t.Errorf("event = %+v", e)
	}
	must(s.Drains.Create(t.Context(), nobody, "fast", toNFS))(t) // another drain of the pool may begin
}

func TestNoMoreMoveAtOnceThanWasAskedAndNoneUnlessItRuns(t *testing.T) {
	s, d := drainSite(t)
	mustSet(t, s, d.ID, root, api.DrainVolumeMoving)
	if moving, pending, err := s.Drains.NextVolumes(t.Context(), d.ID); err != nil || len(moving) != 1 || len(pending) != 2 || moving[0].VolumeID != root {
		t.Errorf("moving %+v, pending %+v (%v)", moving, pending, err)
	}
	must(s.Drains.SetState(t.Context(), nobody, d.ID, api.DrainPaused))(t)
	wantCode(t, set(t, s, d.ID, data, api.DrainVolumeMoving), api.CodeConflict, "paused")
	if moving, pending, err := s.Drains.NextVolumes(t.Context(), d.ID); err != nil || len(moving) != 1 || len(pending) != 0 {
		t.Errorf("moving %+v, pending %+v (%v)", moving, pending, err)
	}
	must(s.Drains.SetState(t.Context(), nobody, d.ID, api.DrainRunning))(t)
	mustSet(t, s, d.ID, data, api.DrainVolumeMoving, api.DrainVolumeMoving)
	wantCode(t, set(t, s, d.ID, addedID["more"], api.DrainVolumeMoving), api.CodeConflict, "2 volumes")
	mustSet(t, s, d.ID, data, api.DrainVolumeMoved)
	mustSet(t, s, d.ID, addedID["more"], api.DrainVolumeMoving)
}

func TestTheStatesOfAVolumeInADrain(t *testing.T) {
	const (
		pending, moving = api.DrainVolumePending, api.DrainVolumeMoving
		moved, skipped  = api.DrainVolumeMoved, api.DrainVolumeSkipped
		failed          = api.DrainVolumeFailed
	)
	allowed := map[string][]string{
		pending: {pending, moving, moved, skipped, failed},
		moving:  {pending, moving, moved, skipped, failed},
		moved:   {moved}, skipped: {skipped}, failed: {failed},
	}
	reach := map[string][]string{pending: nil, moving: {moving}, moved: {moving, moved}, skipped: {skipped}, failed: {moving, failed}}
	for from, path := range reach {
		for _, to := range []string{pending, moving, moved, skipped, failed, "dancing"} {
			s, d := drainSite(t)
			mustSet(t, s, d.ID, root, path...)
			if err := set(t, s, d.ID, root, to); (err == nil) != slices.Contains(allowed[from], to) {
				t.Errorf("from %s to %s: %v", from, to, err)
			}
		}
	}
	s, d := drainSite(t)
	wantCode(t, set(t, s, d.ID, id(volumeKind, 9), moving), api.CodeNotFound, "no volume")
	wantCode(t, set(t, s, "gone", root, moving), api.CodeNotFound, "no drain")
}

func TestWhatASkippedVolumeSaysIsKept(t *testing.T) {
	s, d := drainSite(t)
	why := api.Errorf(api.CodeMultiattached, "cannot migrate volume root: it has 2 attachments").With("attachments", "2")
	line := api.DrainVolume{VolumeID: root, State: api.DrainVolumeSkipped, Error: why}
	if err := s.Drains.SetVolume(t.Context(), nobody, d.ID, line); err != nil {
		t.Fatal(err)
	}
	got := must(s.Drains.Get(t.Context(), d.ID))(t)
	if diff := cmp.Diff(why, got.Volumes[2].Error); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if got.BytesTotal != 2*size {
		t.Errorf("total = %d, want that of the two others", got.BytesTotal)
	}
	if e := lastEvent(t, s); e.What != "drain.volume" || e.From != api.DrainVolumePending || e.To != api.DrainVolumeSkipped || e.Details["volume_id"] != root {
		t.Errorf("event = %+v", e)
	}
}

func TestProgressOfADrainIsThatOfItsMigrations(t *testing.T) {
	s, d := drainSite(t)
	migrating(t, s)
	if err := s.Drains.SetVolume(t.Context(), nobody, d.ID, api.DrainVolume{VolumeID: root, State: api.DrainVolumeMoving, MigrationID: move}); err != nil {
		t.Fatal(err)
	}
	mustSet(t, s, d.ID, data, api.DrainVolumeMoving, api.DrainVolumeMoved)
	must(s.Reports.Receive(t.Context(), nobody, progress(hostA, "a", move, 1000)))(t)
	got := must(s.Drains.Get(t.Context(), d.ID))(t)
	if got.BytesDone != size+1000 || got.Volumes[2].BytesDone != 1000 || got.Volumes[0].BytesDone != size {
		t.Errorf("drain = %+v", got)
	}
	must(s.Reports.Receive(t.Context(), nobody, progress(hostA, "a", move, 2*size)))(t)
	if got := must(s.Drains.Get(t.Context(), d.ID))(t); got.BytesDone != 2*size {
		t.Errorf("a host that says too much makes %d bytes done", got.BytesDone)
	}
}

func TestRefreshTakesInWhatArrivesAndSettlesWhatIsGone(t *testing.T) {
	s, d := drainSite(t)
	refresh := func() {
		t.Helper()
		if err := s.Drains.RefreshVolumes(t.Context(), nobody, d.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := unchanged(t, s, func() error { return s.Drains.RefreshVolumes(t.Context(), nobody, d.ID) }); err != nil {
		t.Error(err)
	}
	addVolume(t, s, "late", "b", "/fast/late")
	moveData(t, s)
	deleteVolume(t, s, "more")
	refresh()
	wantLines(t, s, d.ID, map[string]string{
		"root": api.DrainVolumePending, "late": api.DrainVolumePending, "data": api.DrainVolumeMoved, "more": api.DrainVolumeSkipped,
	})
	if e := lastEvent(t, s); e.What != "drain.refresh" || e.Details["arrived"] != 1.0 || e.Details["gone"] != 2.0 {
		t.Errorf("event = %+v", e)
	}
	if err := unchanged(t, s, func() error { return s.Drains.RefreshVolumes(t.Context(), nobody, d.ID) }); err != nil {
		t.Error(err)
	}

	// It was moved, and then moved back.
	back := dataMigration()
	back.ID, back.Generation, back.Dst = id(migrationKind, 3), 2, at("/fast/data")
	must(s.Migrations.Register(t.Context(), nobody, back))(t)
	must(s.Migrations.Transition(t.Context(), nobody, back.ID, step(api.MigrationCompleting, api.MigrationStarting)))(t)
	must(s.Migrations.Transition(t.Context(), nobody, back.ID, step(api.MigrationCompleted, api.MigrationCompleting)))(t)
	refresh()
	if got := lines(t, s, d.ID)["data"]; got != api.DrainVolumePending {
		t.Errorf("a volume that came back is %s", got)
	}

	must(s.Drains.SetState(t.Context(), nobody, d.ID, api.DrainStopped))(t)
	deleteVolume(t, s, "late")
	if err := unchanged(t, s, func() error { return s.Drains.RefreshVolumes(t.Context(), nobody, d.ID) }); err != nil {
		t.Error(err)
	}
}

func TestADrainTakesInWhatIsOnItsWayIntoThePool(t *testing.T) {
	s, d := drainSite(t)
	moveData(t, s)
	mustSet(t, s, d.ID, root, api.DrainVolumeSkipped)
	mustSet(t, s, d.ID, addedID["more"], api.DrainVolumeSkipped)
	refresh := func() {
		t.Helper()
		if err := s.Drains.RefreshVolumes(t.Context(), nobody, d.ID); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	back := dataMigration()
	back.ID, back.Generation, back.Dst = id(migrationKind, 3), 2, at("/fast/data")
	must(s.Migrations.Register(t.Context(), nobody, back))(t)
	wantCode(t, second(s.Drains.Finish(t.Context(), nobody, d.ID)), api.CodeConflict, "1 volume left")
	refresh()
	if got := lines(t, s, d.ID)["data"]; got != api.DrainVolumePending {
		t.Errorf("a volume on its way into the pool is %s", got)
	}
	must(s.Migrations.Transition(t.Context(), nobody, back.ID, step(api.MigrationCancelling, api.MigrationStarting)))(t)
	must(s.Migrations.Transition(t.Context(), nobody, back.ID, step(api.MigrationCancelled, api.MigrationCancelling)))(t)
	refresh()
	if got := lines(t, s, d.ID)["data"]; got != api.DrainVolumeMoved {
		t.Errorf("a volume that did not come is %s", got)
	}
	if got := must(s.Drains.Finish(t.Context(), nobody, d.ID))(t); got.State != api.DrainDone {
		t.Errorf("drain = %+v", got)
	}
}

func TestADrainIsDoneWhenNothingIsLeft(t *testing.T) {
	s, d := drainSite(t)
	finish := func() error { return second(s.Drains.Finish(t.Context(), nobody, d.ID)) }
	wantCode(t, unchanged(t, s, finish), api.CodeConflict, "3 volumes left")
	mustSet(t, s, d.ID, root, api.DrainVolumeSkipped)
	mustSet(t, s, d.ID, addedID["more"], api.DrainVolumeMoving, api.DrainVolumeFailed)
	mustSet(t, s, d.ID, data, api.DrainVolumeMoving)
	wantCode(t, unchanged(t, s, finish), api.CodeConflict, "1 volume left")
	moveData(t, s)
	mustSet(t, s, d.ID, data, api.DrainVolumeMoved)
	addVolume(t, s, "late", "b", "/fast/late")
	wantCode(t, unchanged(t, s, finish), api.CodeConflict, "1 volume left")
	deleteVolume(t, s, "late")
	got := must(s.Drains.Finish(t.Context(), nobody, d.ID))(t)
	if got.State != api.DrainDone || got.FinishedAt == nil {
		t.Errorf("drain = %+v", got)
	}
	if err := unchanged(t, s, finish); err != nil {
		t.Errorf("the same again: %v", err)
	}
	wantCode(t, second(s.Drains.SetState(t.Context(), nobody, d.ID, api.DrainRunning)), api.CodeStateForbidden, "done")
}

func TestOpenDrainsAreThoseWithSomethingToLookAfter(t *testing.T) {
	s, d := drainSite(t)
	open := func() int { return len(must(s.Drains.Open(t.Context()))(t)) }
	mustSet(t, s, d.ID, root, api.DrainVolumeMoving)
	must(s.Drains.SetState(t.Context(), nobody, d.ID, api.DrainStopped))(t)
	wantCode(t, second(s.Drains.Finish(t.Context(), nobody, d.ID)), api.CodeConflict, "stopped")
	if open() != 1 {
		t.Error("a stopped drain of which a volume moves is not looked after")
	}
	mustSet(t, s, d.ID, root, api.DrainVolumeMoved)
	if open() != 0 {
		t.Error("a stopped drain is looked after")
	}
}

func TestADrainToAPoolThatIsActiveNowhereIsRefused(t *testing.T) {
	s := newSite(t)
	in := reportOf(hostA, "a")
	in.Pools = []api.Pool{{Name: "fast", Active: true}, {Name: "cold"}}
	must(s.Reports.Receive(t.Context(), nobody, in))(t)
	to := api.PoolDrain{ToPool: "cold"}
	err := unchanged(t, s, func() error { return second(s.Drains.Create(t.Context(), nobody, "fast", to)) })
	wantCode(t, err, api.CodeStateForbidden, "virsh pool-start cold")
	in.Pools[1].Active = true
	must(s.Reports.Receive(t.Context(), nobody, in))(t)
	must(s.Drains.Create(t.Context(), nobody, "fast", to))(t)
}

func TestADrainGoesOnAfterARestart(t *testing.T) {
	s, reopen := reopenable(t)
	in := reportOf(hostA, "a")
	in.Pools = []api.Pool{{Name: "fast"}, {Name: "nfs", Active: true}}
	must(s.Reports.Receive(t.Context(), nobody, in))(t)
	addVolume(t, s, "more", "a", "/fast/more")
	d := must(s.Drains.Create(t.Context(), nobody, "fast", toNFS))(t)
	mustSet(t, s, d.ID, addedID["more"], api.DrainVolumeMoving)
	before := must(s.Drains.Get(t.Context(), d.ID))(t)
	s = reopen()
	if diff := cmp.Diff(before, must(s.Drains.Get(t.Context(), d.ID))(t)); diff != "" {
		t.Errorf("drain (-before +after):\n%s", diff)
	}
}

func TestADrainThatGaveUpVolumesIsReplacedByOneToItsPoolAlone(t *testing.T) {
	s, d := drainSite(t)
	in := reportOf(hostA, "a")
	in.Pools = []api.Pool{{Name: "fast"}, {Name: "nfs", Active: true}, {Name: "third", Active: true}}
	must(s.Reports.Receive(t.Context(), nobody, in))(t)
	mustSet(t, s, d.ID, root, api.DrainVolumeSkipped)
	elsewhere := func() error {
		return second(s.Drains.Create(t.Context(), nobody, "fast", api.PoolDrain{ToPool: "third"}))
	}
	wantCode(t, unchanged(t, s, elsewhere), api.CodeConflict, d.ID)
	must(s.Drains.Create(t.Context(), nobody, "fast", toNFS))(t)
	if got := must(s.Drains.Get(t.Context(), d.ID))(t); got.State != api.DrainStopped {
		t.Errorf("the drain before is %s, want it stopped", got.State)
	}
}
