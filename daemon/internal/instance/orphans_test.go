// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The registry may be from a backup without the move: its work is in the host's journal.
func TestAHostSaysWhatItHasSavedAndWhereItWasToBeWoken(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		says := func() []api.SavedInstance {
			t.Helper()
			is, err := d.now().Saved(t.Context(), pausedMig)
			must(t, err)
			return is
		}
		if got := says(); len(got) != 0 {
			t.Errorf("before the move: %+v", got)
		}
		wantState(t, d.save("save"), op.StateDone, "")
		want := []api.SavedInstance{{InstanceID: pausedWeb, InstanceName: "web", VolumeID: pausedVol, Location: d.world.location(pausedSrc), Asleep: true, AtRest: true}}
		if diff := cmp.Diff(want, says()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
		must(t, d.world.copied())
		wantState(t, d.restore("restore", pausedWeb, pausedDst), op.StateDone, "")
		want[0].Location, want[0].Asleep, want[0].AtRest = d.world.location(pausedDst), false, false
		if diff := cmp.Diff(want, says()); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
		must(t, d.world.SetConfigChain(t.Context(), pausedWeb, "vdb", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: pausedSrc}}))
		want[0].MovedTo = pausedSrc
		if diff := cmp.Diff(want, says()); diff != "" {
			t.Errorf("woken, and moved again (-want +got):\n%s", diff)
		}
		if _, err := d.now().Saved(t.Context(), "../x"); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("no id: %v", err)
		}
	}, hv.StateRunning)
}

// A restored registry may lack the move: the generation tells which of the two is older.
func TestARequestToWakeAnInstanceKeepsTheGenerationOfItsVolume(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.copied())
		wantState(t, d.restore("restore", pausedWeb, pausedDst), op.StateDone, "")
		for _, id := range []string{"restore", "restore.resume"} {
			o, err := d.world.journal.Op(t.Context(), id)
			must(t, err)
			var in memory.PauseInput
			must(t, json.Unmarshal(o.Input, &in))
			if !slices.Contains(subject.WakeKinds, o.Kind) || in.Generation != pausedGeneration || in.Location.Path != pausedDst {
				t.Errorf("%s is %s, at %s in generation %d, want %s in %d", id, o.Kind, in.Location.Path, in.Generation, pausedDst, pausedGeneration)
			}
		}
	}, hv.StateRunning)
}

func TestAnInstanceIsStrayIfTheMoveThatGuardsItDoesNotHaveIt(t *testing.T) {
	guarded := []guard.Guard{{Owner: "root"}, {Owner: guard.OwnerPause + pausedMig}}
	for name, tc := range map[string]struct {
		lockedBy string
		guards   []guard.Guard
		want     bool
	}{
		"not guarded":      {"", []guard.Guard{{Owner: "root"}}, false},
		"had by the move":  {pausedMig, guarded, false},
		"had by nobody":    {"", guarded, true},
		"had by another":   {"another", guarded, true},
		"no guards at all": {"", nil, false},
	} {
		if got := OrphanedSave(api.Instance{LockedBy: tc.lockedBy}, tc.guards); strings.Contains(got, "migration cancel "+pausedMig) != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
