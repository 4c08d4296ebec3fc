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
		"reservation":             {"DELETE FROM locations WHERE migration_id = ?", "location_of_migration (migration_id=?)"},
	} {
		plan := strings.Join(must(queryAll(t.Context(), s.db.Read, scan, "EXPLAIN QUERY PLAN "+tc.query, nil, nil, nil, nil))(t), "\n")
		if strings.Contains(plan, "SCAN ") || !strings.Contains(plan, "USING INDEX "+tc.index) {
			t.Errorf("%s: want %s in\n%s", name, tc.index, plan)
		}
	}
}

// victimEnv makes this test binary a registry that acknowledges volumes until
// it is killed.
const victimEnv = "VOLFERRY_TEST_VICTIM"

// runVictim does not return in the victim.
func runVictim() {
	path := os.Getenv(victimEnv)
	if path == "" {
		return
	}
	ctx := context.Background()
	s, err := Open(ctx, path, Options{})
	if err == nil {
		_, err = s.Report(ctx, nobody, api.HostReport{ID: hostA, Name: "a"})
	}
	for n := 0; err == nil; n++ {
		_, err = s.RegisterVolume(ctx, Call{Key: fmt.Sprint("key-", n)}, api.VolumeRegister{
			ID: id(volumeKind, n), Name: fmt.Sprint("v", n), Status: api.VolumeAvailable, Host: "a", Location: at(fmt.Sprint("/fast/", n)),
		})
		fmt.Fprintln(os.Stdout, n)
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
	lines, acknowledged := bufio.NewScanner(out), 0
	for acknowledged < 100 && lines.Scan() {
		acknowledged++
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // acknowledged while we killed it
		acknowledged++
	}
	if err := victim.Wait(); err == nil || acknowledged < 100 {
		t.Fatalf("the victim ended by itself: %v after %d", err, acknowledged)
	}

	s := openStore(t, path, Options{})
	volumes := len(must(s.Volumes(t.Context(), everyone))(t))
	if volumes < acknowledged || volumes > acknowledged+1 {
		t.Errorf("volumes = %d, want the %d acknowledged ones and at most the one in flight", volumes, acknowledged)
	}
	if n := must(s.VerifyAudit(t.Context()))(t); n != int64(volumes)+1 {
		t.Errorf("events = %d, want one per volume and one for the host", n)
	}
	if n := len(dump(t.Context(), t, s)["idempotency"]); n != volumes {
		t.Errorf("answers = %d, want one per volume", n)
	}
}
