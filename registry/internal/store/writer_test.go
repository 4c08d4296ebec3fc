// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// insertType is a change that can be seen afterwards.
func insertType(name string) func(context.Context, *writeTx) error {
	return func(ctx context.Context, tx *writeTx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO volume_types (id, name, multiattach, created_us) VALUES (?1, ?1, 0, 0)", name)
		return err
	}
}

// queueChange is submit without the waiting.
func queueChange(t *testing.T, s *Store, do func(context.Context, *writeTx) error) change {
	t.Helper()
	c := change{ctx: t.Context(), do: do, done: make(chan error, 1)}
	s.writer.queue <- c
	return c
}

func TestWaitingChangesShareACommitAndARefusedOneLeavesNoTrace(t *testing.T) {
	var batches []int
	s := openStore(t, filepath.Join(t.TempDir(), "registry.db"), Options{OnCommit: func(n int, _ time.Duration) { batches = append(batches, n) }})

	inside, release := make(chan struct{}), make(chan struct{})
	first := queueChange(t, s, func(context.Context, *writeTx) error { close(inside); <-release; return nil })
	<-inside
	const waiting = 20
	refused := errors.New("refused")
	var changes []change
	for n := range waiting {
		changes = append(changes, queueChange(t, s, func(ctx context.Context, tx *writeTx) error {
			if err := insertType(fmt.Sprint("t", n))(ctx, tx); err != nil {
				return err
			}
			switch n {
			case 3:
				return refused
			case 4:
				panic("bug")
			}
			return nil
		}))
	}
	close(release)
	if err := <-first.done; err != nil {
		t.Error(err)
	}
	errs := make([]error, waiting)
	for n, c := range changes {
		errs[n] = <-c.done
	}

	if len(batches) != 2 || batches[1] != waiting {
		t.Errorf("batches = %v, want 1 and then all %d that waited", batches, waiting)
	}
	for n, err := range errs {
		if bad := n == 3 || n == 4; (err != nil) != bad {
			t.Errorf("change %d: error = %v", n, err)
		}
	}
	if !errors.Is(errs[3], refused) {
		t.Errorf("change 3: error = %v, want its own", errs[3])
	}
	if n := len(must(s.Types(t.Context()))(t)); n != 1+waiting-2 {
		t.Errorf("types = %d, want default and %d", n, waiting-2)
	}
}

func TestChangeOfACallerThatLeftIsNotBegun(t *testing.T) {
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if err := s.writer.submit(ctx, insertType("gone")); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v", err)
		}
	}
	if err := s.writer.submit(t.Context(), insertType("here")); err != nil {
		t.Fatal(err)
	}
	if n := len(must(s.Types(t.Context()))(t)); n != 2 {
		t.Errorf("types = %d, want default and here", n)
	}
}

func TestChangesAfterCloseAreUnavailable(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateType(t.Context(), nobody, api.VolumeTypeCreate{Name: "late"})
	wantCode(t, err, api.CodeRegistryUnavailable, "stopping")
}

// TestChangesDoNotScanTables holds the writer, which everybody waits for, to
// work that does not grow with the site.
func TestChangesDoNotScanTables(t *testing.T) {
	s := newSite(t)
	scan := func(row scanner) (string, error) {
		var (
			ignored any
			detail  string
		)
		return detail, row.Scan(&ignored, &ignored, &ignored, &detail)
	}
	for name, tc := range map[string]struct{ query, index string }{
		"holder by path":          {holderQuery, "location_path (path=?)"},
		"holder by name":          {holderQuery, "location_name (scope=? AND pool=? AND name=?)"},
		"volume":                  {volumeQuery + " WHERE v.id = ?", "location_of_volume (volume_id=?)"},
		"lock of a volume":        {volumeQuery + " WHERE v.id = ?", "migration_lock (volume_id=?)"},
		"attachments of a volume": {attachmentQuery + " WHERE a.volume_id = ?", "attachment_volume (volume_id=?)"},
		"place of an attachment":  {attachmentQuery + " WHERE a.id = ?", "location_volume (volume_id=?)"},
		"task":                    {taskQuery + " WHERE t.id = ?", "sqlite_autoindex_tasks_1 (id=?)"},
		"volumes of a pool":       {inPoolQuery, "location_pool (pool=?)"},
		"reservation":             {"DELETE FROM locations WHERE migration_id = ?", "location_of_migration (migration_id=?)"},
	} {
		plan := strings.Join(must(queryAll(t.Context(), s.db.Read, scan, "EXPLAIN QUERY PLAN "+tc.query, nil, nil, nil, nil))(t), "\n")
		if strings.Contains(plan, "SCAN ") || !strings.Contains(plan, "USING INDEX "+tc.index) {
			t.Errorf("%s: want %s in\n%s", name, tc.index, plan)
		}
	}
}

func TestAChangeThatMeetsAFullDatabaseSinksItsTransactionAndNothingElse(t *testing.T) {
	s := newSite(t)
	var pages int
	if err := s.db.Write.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(pages int) {
		t.Helper()
		if _, err := s.db.Write.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(pages)
	big := func(ctx context.Context, tx *writeTx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO idempotency (key, request, response, at_us) VALUES ('big', x'', json_quote(hex(zeroblob(100000))), 0)")
		return err
	}
	err := unchanged(t, s, func() error {
		inside, release := make(chan struct{}), make(chan struct{})
		first := queueChange(t, s, func(context.Context, *writeTx) error { close(inside); <-release; return nil })
		<-inside
		batch := []change{queueChange(t, s, insertType("before")), queueChange(t, s, big), queueChange(t, s, insertType("after"))}
		close(release)
		err := <-first.done
		for _, c := range batch {
			wantCode(t, <-c.done, api.CodeRegistryUnavailable, "full")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	limit(1 << 30)
	for _, do := range []func(context.Context, *writeTx) error{insertType("before"), big, insertType("after")} {
		if err := s.writer.submit(t.Context(), do); err != nil {
			t.Errorf("with space again: %v", err)
		}
	}
	if n := len(must(s.Types(t.Context()))(t)); n != 3 {
		t.Errorf("types = %d, want default, before and after", n)
	}
}

func TestWhatIsDoneAfterTheCommitIsNotDoneForARefusedChange(t *testing.T) {
	s := newStore(t)
	var done []string
	inside, release := make(chan struct{}), make(chan struct{})
	first := queueChange(t, s, func(context.Context, *writeTx) error { close(inside); <-release; return nil })
	<-inside
	refused := errors.New("refused")
	var batch []change
	for _, name := range []string{"a", "b", "c"} {
		batch = append(batch, queueChange(t, s, func(_ context.Context, tx *writeTx) error {
			tx.onCommit(func() { done = append(done, name) })
			if name == "b" {
				return refused
			}
			return nil
		}))
	}
	close(release)
	for _, c := range append(batch, first) {
		if err := <-c.done; err != nil && !errors.Is(err, refused) {
			t.Error(err)
		}
	}
	if fmt.Sprint(done) != "[a c]" {
		t.Errorf("done = %v, want a and c in their order", done)
	}
}

func TestQueriesArePreparedOnce(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"a", "b", "c"} {
		if err := s.writer.submit(t.Context(), insertType(name)); err != nil {
			t.Fatal(err)
		}
	}
	err := s.writer.pause(t.Context(), func() error {
		if len(s.writer.known.prepared) == 0 || len(s.writer.known.unknown) != 0 {
			t.Errorf("prepared = %d, unknown = %d", len(s.writer.known.prepared), len(s.writer.known.unknown))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHousekeepingEmptiesTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	s := openStore(t, path, Options{})
	must(s.Report(t.Context(), nobody, reportOfFast()))(t)
	size := func() int64 { return must(os.Stat(path + "-wal"))(t).Size() }
	if size() == 0 {
		t.Fatal("a change is not in the log")
	}
	// A reader keeps it, and is not waited for.
	reader := must(s.db.Read.BeginTx(t.Context(), nil))(t)
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM hosts").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if err := post(t.Context(), s, nobody); err != nil {
		t.Fatal(err)
	}
	if err := s.Housekeep(t.Context()); err != nil || size() == 0 {
		t.Errorf("with a reader: %v, log of %d bytes", err, size())
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Housekeep(t.Context()); err != nil || size() != 0 {
		t.Errorf("log of %d bytes (%v), want none", size(), err)
	}
}

// victimEnv makes this test binary a registry that acknowledges volumes until
// it is killed.
const victimEnv = "VOLFERRY_TEST_VICTIM"

// victimClients is how many changes are in flight in the victim.
const victimClients = 16

// runVictim does not return in the victim.
func runVictim() {
	path := os.Getenv(victimEnv)
	if path == "" {
		return
	}
	ctx := context.Background()
	s, err := Open(ctx, path, Options{})
	if err == nil {
		_, err = s.Report(ctx, nobody, reportOfFast())
	}
	if err == nil {
		failed := make(chan error)
		for client := range victimClients {
			go func() {
				for n := client; ; n += victimClients {
					if _, err := s.RegisterVolume(ctx, Call{Key: fmt.Sprint("key-", n)}, numbered(n)); err != nil {
						failed <- err
					}
					fmt.Fprintln(os.Stdout, n)
				}
			}()
		}
		err = <-failed
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestWhatWasAcknowledgedIsThereAfterKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"="+path)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var acknowledged []int
	read := func() bool {
		if !lines.Scan() {
			return false
		}
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		acknowledged = append(acknowledged, n)
		return true
	}
	for len(acknowledged) < 300 && read() {
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for read() { // acknowledged while we killed it
	}
	if err := victim.Wait(); err == nil || len(acknowledged) < 300 {
		t.Fatalf("the victim ended by itself: %v after %d", err, len(acknowledged))
	}

	s := openStore(t, path, Options{})
	for _, n := range acknowledged {
		if _, err := s.Volume(t.Context(), id(volumeKind, n), Viewer{}); err != nil {
			t.Errorf("volume %d was acknowledged: %v", n, err)
		}
	}
	volumes := len(must(s.Volumes(t.Context(), Viewer{}))(t))
	if volumes > len(acknowledged)+victimClients {
		t.Errorf("volumes = %d, want the %d acknowledged ones and at most those in flight", volumes, len(acknowledged))
	}
	wantWhole(t, s, volumes)
}
