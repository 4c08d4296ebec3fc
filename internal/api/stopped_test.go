// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"
)

func TestTheCuresOfAMoveWhoseCopyFailedNameTheCopyAndThenTheComplete(t *testing.T) {
	m := Migration{ID: "m1", VolumeName: "db", State: MigrationStarted, SrcAttachmentID: "a1", DstAttachmentID: "a2"}
	again, back := m.Cures()
	if want := "volferryctl migration copy a1, and when it is copied volferryctl migration complete a1 a2"; again != want {
		t.Errorf("again is %q, want %q", again, want)
	}
	if want := "volferryctl migration cancel a1"; back != want {
		t.Errorf("back is %q, want %q", back, want)
	}
}

func TestTheCureOfAWholeMoveWhoseCopyFailedIsTheCopyAlone(t *testing.T) {
	m := Migration{ID: "m1", VolumeName: "db", State: MigrationStarted, SrcAttachmentID: "a1", DstAttachmentID: "a2", Composite: true}
	if again, _ := m.Cures(); again != "volferryctl migration copy a1" {
		t.Errorf("again is %q", again)
	}
	m.ExternalCopy = true
	if again, _ := m.Cures(); again != "volferryctl migration complete a1 a2" {
		t.Errorf("with an external copy again is %q", again)
	}
}

func TestTheCuresAfterAChangeFromOutsideBeginWithALookAtTheVolume(t *testing.T) {
	for _, state := range []MigrationState{MigrationStarted, MigrationCopied, MigrationCancelling} {
		m := Migration{ID: "m1", VolumeName: "db", State: state}
		plain, _ := m.Cures()
		m.Error = Errorf(CodeChainChanged, "disk vda was changed by somebody else")
		again, _ := m.Cures()
		for _, text := range []string{again, m.CancelAgain()} {
			if !strings.HasPrefix(text, "volferryctl volume which db, ") || !strings.Contains(text, "A definition that was put back") {
				t.Errorf("%s: %q does not begin with a look", state, text)
			}
		}
		if !strings.HasSuffix(again, ", then "+plain) {
			t.Errorf("%s: %q does not end with %q", state, again, plain)
		}
		if cancel := m.CancelAgain(); !strings.HasSuffix(cancel, ", then volferryctl migration cancel m1") {
			t.Errorf("%s: after a cancel %q is not to cancel again", state, cancel)
		}
	}
}

func TestAMoveThatIsTakenBackIsAtItsSourceWhileItsGuestsAreLetRun(t *testing.T) {
	m := Migration{ID: "m1", State: MigrationNeedsOperator, Phase: "resuming", Src: Location{Path: "/src"}, Dst: Location{Path: "/dst"}}
	m.Error = Errorf(CodeNeedsOperator, "look").With(DetailCure, "volferryctl migration cancel m1 --discard-memory, then volferryctl instance start web")
	if verb, at := m.PausedGoal(); verb != "cancel" || at.Path != "/src" {
		t.Errorf("the goal is to %s, and the volume is at %s", verb, at.Path)
	}
}
