// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
)

// childEnv makes the test binary the victim of TestARecordSurvivesSIGKILL.
const childEnv = "VOLFERRY_TEST_JOURNAL_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := appendAndHang(context.Background(), path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1) //nolint:forbidigo // this is the main of a child process
	}
	os.Exit(m.Run()) //nolint:forbidigo // as every TestMain
}

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func openNew(t *testing.T) *Journal {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "journal.db"))
}

func TestConformance(t *testing.T) {
	optest.JournalConformance(t, func(t *testing.T) op.Journal { return openNew(t) })
}

func TestFileIsForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	open(t, path)
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := fi.Mode().Perm(); got != 0o600 {
		t.Errorf("mode is %o, want 600", got)
	}
}

var childOp = op.Op{ID: "a", Kind: "move", CreatedAt: time.Unix(1, 0).UTC()}

// appendAndHang writes one record, prints that, and waits for its death.
func appendAndHang(ctx context.Context, path string) error {
	j, err := Open(ctx, path)
	if err != nil {
		return err
	}
	if _, err := j.Create(ctx, childOp); err != nil {
		return err
	}
	r := op.Record{OpID: "a", Seq: 1, At: time.Unix(2, 0), Step: "one", Kind: op.EventStarted}
	if err := j.Append(ctx, r); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "appended")
	select {}
}

func TestARecordSurvivesSIGKILL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "appended\n" {
		t.Errorf("the child said %q, %v", line, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("the child ended by itself")
	}

	j := open(t, path)
	ops, err := j.Unfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]op.Op{childOp}, ops); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	records, err := j.Records(t.Context(), "a")
	if err != nil || len(records) != 1 || records[0].Kind != op.EventStarted {
		t.Errorf("got %v, %v; want the started record", records, err)
	}
}

func TestAFullDatabaseIsAJournalErrorAndThePastStaysReadable(t *testing.T) {
	j := openNew(t)
	if _, err := j.Create(t.Context(), childOp); err != nil {
		t.Fatal(err)
	}
	if _, err := j.db.Write.ExecContext(t.Context(), `PRAGMA max_page_count = 1`); err != nil {
		t.Fatal(err)
	}
	err := j.PutBlob(t.Context(), "cursor", make([]byte, 1<<20))
	if !errors.Is(err, op.ErrJournal) {
		t.Errorf("got %v, want ErrJournal", err)
	}
	if _, err := j.Op(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestAReadOnlyDatabaseIsAJournalError(t *testing.T) {
	j := openNew(t)
	if _, err := j.db.Write.ExecContext(t.Context(), `PRAGMA query_only = 1`); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Create(t.Context(), childOp); !errors.Is(err, op.ErrJournal) {
		t.Errorf("create: got %v, want ErrJournal", err)
	}
	r := op.Record{OpID: "a", Seq: 1, Kind: op.EventStarted, Step: "one"}
	if err := j.Append(t.Context(), r); !errors.Is(err, op.ErrJournal) {
		t.Errorf("append: got %v, want ErrJournal", err)
	}
	if err := j.Probe(t.Context()); !errors.Is(err, op.ErrJournal) {
		t.Errorf("probe: got %v, want ErrJournal", err)
	}
}

func TestOpsAreChosenByKindAndEnd(t *testing.T) {
	j := openNew(t)
	for _, o := range []op.Op{
		{ID: "a", Kind: "move", CreatedAt: time.Unix(1, 0)},
		{ID: "b", Kind: "attach", CreatedAt: time.Unix(2, 0)},
		{ID: "c", Kind: "move", CreatedAt: time.Unix(3, 0)},
	} {
		if _, err := j.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Append(t.Context(), op.Record{OpID: "a", Seq: 1, Kind: op.EventFinished}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind       string
		unfinished bool
		want       []string
	}{
		{"", false, []string{"a", "b", "c"}},
		{"", true, []string{"b", "c"}},
		{"move", false, []string{"a", "c"}},
		{"move", true, []string{"c"}},
		{"none", false, nil},
	} {
		ops, err := j.Ops(t.Context(), c.kind, c.unfinished)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range ops {
			got = append(got, o.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("kind %q unfinished %v (-want +got)\n%s", c.kind, c.unfinished, diff)
		}
	}
}

func TestBlobsAreReplacedAndDeletedByPrefix(t *testing.T) {
	j := openNew(t)
	put := func(key, data string) {
		t.Helper()
		if err := j.PutBlob(t.Context(), key, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	put("copy/1_/a", "old")
	put("copy/1_/a", "new")
	put("copy/1x/a", "other")
	put("copy/1_/empty", "")
	if got, err := j.Blob(t.Context(), "copy/1_/a"); string(got) != "new" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := j.Blob(t.Context(), "copy/1_/empty"); err != nil || len(got) != 0 {
		t.Errorf("got %q, %v", got, err)
	}
	if err := j.DeleteBlobs(t.Context(), "copy/1_/"); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Blob(t.Context(), "copy/1_/a"); !errors.Is(err, op.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if got, err := j.Blob(t.Context(), "copy/1x/a"); string(got) != "other" {
		t.Errorf("a neighbour is gone: %q, %v", got, err)
	}
	if err := j.DeleteBlobs(t.Context(), ""); err == nil {
		t.Error("an empty prefix is taken")
	}
}

func TestAnOpCannotFinishTwice(t *testing.T) {
	j := openNew(t)
	if _, err := j.Create(t.Context(), childOp); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), op.Record{OpID: "a", Seq: 1, Kind: op.EventFinished}); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), op.Record{OpID: "a", Seq: 2, Kind: op.EventFinished}); err == nil {
		t.Error("a second finished record is taken")
	}
}

func TestAnOpRunsOnItAndIsReadBackAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	plan := op.Plan{Kind: "move", Steps: []op.Step{{
		Name: "one",
		Do: func(ctx context.Context, r *op.Run) error {
			return errors.Join(r.Note(ctx, "noted"), r.SetOutput(7))
		},
	}}}
	runner := optest.NewRunner(j)
	runner.Register(plan)
	if err := runner.Submit(t.Context(), childOp); err != nil {
		t.Fatal(err)
	}
	want, err := runner.Wait(t.Context(), "a")
	if err != nil || want.State != op.StateDone {
		t.Fatalf("%+v, %v", want, err)
	}
	runner.Stop()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	records, err := open(t, path).Records(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	p, err := op.Replay(&plan, records)
	if err != nil || p.State != op.StateDone || string(p.Outputs["one"]) != "7" || string(p.Notes["one"]) != `"noted"` {
		t.Errorf("read back %+v, %v", p, err)
	}
}
