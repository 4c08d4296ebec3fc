// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"
)

// sent is a record that the journal has accepted.
type sent struct {
	Message  string
	Priority journal.Priority
	Fields   map[string]string
}

// stream returns a file that JOURNAL_STREAM names.
func stream(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", st.Dev, st.Ino))
	return f
}

func written(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheJournalGetsTheLineAndItsAttributesAsFields(t *testing.T) {
	var got []sent
	f := stream(t)
	log, err := newLogger(f, "info", func(message string, priority journal.Priority, fields map[string]string) error {
		got = append(got, sent{message, priority, fields})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	log.Info("migration begins", "migration", "m-1", "to", "/pool/a b")
	of := log.With("op", "o-1")
	of.With("step", 1).Warn("retried") // step is no field of later records
	of.WithGroup("copy").Error("failed", slog.Group("dst", "path", "/x"), "err", errors.New("no room"))
	want := []sent{
		{`level=INFO msg="migration begins" migration=m-1 to="/pool/a b"`, journal.PriInfo, map[string]string{"VOLFERRY_MIGRATION": "m-1", "VOLFERRY_TO": "/pool/a b"}},
		{`level=WARN msg=retried op=o-1 step=1`, journal.PriWarning, map[string]string{"VOLFERRY_OP": "o-1", "VOLFERRY_STEP": "1"}},
		{`level=ERROR msg=failed op=o-1 copy.dst.path=/x copy.err="no room"`, journal.PriErr, map[string]string{"VOLFERRY_OP": "o-1", "VOLFERRY_COPY_DST_PATH": "/x", "VOLFERRY_COPY_ERR": "no room"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the journal has (-want +got):\n%s", diff)
	}
	if text := written(t, f); text != "" {
		t.Errorf("its stream has %q, too", text)
	}
}

func TestWhatTheJournalDoesNotTakeGoesToItsStream(t *testing.T) {
	f := stream(t)
	log, err := newLogger(f, "info", func(string, journal.Priority, map[string]string) error { return errors.New("no socket") })
	if err != nil {
		t.Fatal(err)
	}
	log.Info("shown", "op", "o-1")
	if text := written(t, f); text != "level=INFO msg=shown op=o-1\n" {
		t.Errorf("the stream has %q", text)
	}
}

func TestAFieldOfTheJournalHasANameThatItTakes(t *testing.T) {
	for key, want := range map[string]string{
		"size-bytes": "VOLFERRY_SIZE_BYTES", "Ünder": "VOLFERRY__NDER", "": "VOLFERRY_",
		"a-very-long-key-of-which-the-journal-takes-no-more-than-the-beginning": "VOLFERRY_A_VERY_LONG_KEY_OF_WHICH_THE_JOURNAL_TAKES_NO_MORE_THAN",
	} {
		if got := fieldName(key); got != want {
			t.Errorf("%q is %s, want %s", key, got, want)
		}
	}
}
