// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	rooms    = "daemon/internal/migrate/"
	barriers = "registry/internal/workflow/pause_barriers.go"
)

// simulation is one of a package: the tests that are it, and how many seeds they have if they
// choose by chance. One without seeds tries everything, of which -short has some.
type simulation struct {
	pkg, tests string
	seeds      int
	// endless: the mistake shows as a trial that goes on for ever, where all of them end in seconds
	// without it.
	endless bool
}

var (
	moves     = simulation{"./daemon/internal/migrate", "^TestNoWriteIsLostWhateverHappensAndWhen$", 1500, false}
	endless   = simulation{"./daemon/internal/migrate", "^TestNoWriteIsLostWhateverHappensAndWhen$", 200, true}
	deaths    = simulation{"./daemon/internal/migrate", "^TestLibvirtdDiesInsideACallAndShowsTheOldChainForEver$", 0, false}
	pivots    = simulation{"./daemon/internal/migrate", "^TestAGuestThatRanBehindAPivotOfWhichNobodyKnowsIsNotFoldedOver$", 0, false}
	strangers = simulation{"./daemon/internal/migrate", "^TestAStaleOverlayIsNotFoldedOverASrcThatWasWrittenSinceWhateverHappensAtEveryCall$", 0, false}
	attaching = simulation{"./daemon/internal/attach", "^TestNothingIsLeftHalfDoneWhateverHappens$", 600, false}
	instances = simulation{"./daemon/internal/instance", "^TestNothingIsLeftHalfDoneWhateverHappens$", 300, false}
	resizes   = simulation{"./daemon/internal/volume", "^TestAVolumeHasOneSizeWhateverHappens$", 1000, false}
	rounds    = simulation{"./registry/internal/sharedmove/livewalk", "^TestHoweverAMoveGoesEveryWriteIsThereAtItsEnd$", 30, false}
	pauses    = simulation{"./registry/internal/sharedmove", "^Test(HoweverAMoveGoesNothingIsLeftAtItsEnd|DeathOfTheRegistryAtAnyMomentChangesNothing)$", 0, false}
	fences    = simulation{"./daemon/internal/uplink", "^TestAFenceSurvivesEveryInterruption$", 0, false}
)

// mutations are edits of the source, each with the mistake that it is, and the simulation that has
// to find it.
var mutations = []struct {
	mistake, file, old, broken string
	by                         simulation
}{
	{"the pivot comes before the definition names dst", rooms + "plans/way.go", "	switchSteps = []string{move.ToSwitch.Begin, pause.DrainStep, overlay.NameDstStep, overlay.PivotStep,", "	switchSteps = []string{move.ToSwitch.Begin, pause.DrainStep, overlay.PivotStep, overlay.NameDstStep,", moves},
	{"the overlay of a guest that may have gone over is folded", rooms + "overlay/step_pivot.go", "err = e.overlayHasAll(ctx, r, s, to, disk)", "err = nil", pivots},
	{"the guest is resumed before the pivot", rooms + "plans/way.go", "	switchSteps = []string{move.ToSwitch.Begin, pause.DrainStep, overlay.NameDstStep, overlay.PivotStep, move.ToSwitch.End,", "	switchSteps = []string{move.ToSwitch.Begin, pause.DrainStep, overlay.NameDstStep, move.ToSwitch.End, overlay.PivotStep,", endless},
	{"libvirt's word is believed alone", rooms + "look/witness.go", "	switch {\n	case !disk.Active:\n		return !o.Src && !o.Overlay && !o.Dst", "	if true {\n		return true\n	}\n	switch {\n	case !disk.Active:\n		return !o.Src && !o.Overlay && !o.Dst", deaths},
	{"the pivot is not observed", rooms + "overlay/step_pivot.go", "return seal.Provided(move.Step(PivotStep", "observe = nil\n\treturn seal.Provided(move.Step(PivotStep", moves},
	{"a guest that may be on either of two images that differ is resumed", rooms + "pause/step_pause.go", "|| disagreed.OneSided && w == move.ToSwitch", "", deaths},
	{"a guest that a person has paused is resumed", rooms + "pause/step_pause.go", "err != nil || !note.Resume {", "err != nil {", moves},
	{"dst is not flushed at the end", rooms + "blockjob/flush_end.go", "err := e.images.Flush(ctx, to.Image(s).Path)", "err := error(nil)", moves},
	{"an overlay is folded into a src that was written since", rooms + "seal/seal.go", "changed := ofVolume(now, s.Src)", "changed := false && ofVolume(now, s.Src)", strangers},
	{"guests run on before all are restored", barriers, "case PauseReady, PauseRestored:", "case PauseReady, PauseRestored, PauseSaved:", pauses},
	{"a fenced host does not say what it was told", "daemon/internal/uplink/run.go", "if reportFirst(err) {", "if false {", fences},
	{"a step's end is journalled before it is done", "daemon/internal/op/forward.go", "	v, err := a.bring(step, run, repeat)", "	if w := a.recordSuccess(step, nil); w != writtenAll {\n		return w.goesOn()\n	}\n	v, err := a.bring(step, run, repeat)", attaching},
	{"a step is journalled as undone and is not", "daemon/internal/op/backward.go", "	err := a.reverse(step)", "	var err error", attaching},
	{"a detach that is undone leaves the disk out of the definition", "daemon/internal/attach/step_detach.go", "err := e.putBack(ctx, r, in, hv.Config)", "err := error(nil)", attaching},
	{"a claim on an instance that is not unshelved stays", "daemon/internal/instance/shelf/step_unshelve.go", "err = e.leaveShelf(ctx, r, &in.Subject, \"unclaim\", api.InstanceShelvedOffloaded)", "err = nil", instances},
	{"a resize is said to be done after a fence in which it was not recorded", "daemon/internal/volume/resize.go", "if err == nil && vol.SizeBytes < asked.SizeBytes {", "if false {", resizes},
	{"a guest counts as told of the size of its device", "daemon/internal/volume/resize_sizes.go", "s.image == bytes && (s.guest == nil || *s.guest == bytes)", "s.image == bytes", resizes},
	{"what a host was asked for counts as done", "registry/internal/workflow/live_wanted.go", "h.Call.again(want) && h.State == LiveDone {", "h.Call.again(want) {", rounds},
}

// mutate returns the path of the file that a mutation edits, and the file with the edit. The text
// has to be there once, so that code which has changed since is not left without its mutation.
func mutate(t *testing.T, file, old, broken string) (path, mutated string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), old); n != 1 {
		t.Fatalf("%s has the text %d times, want once: adapt the mutation", file, n)
	}
	return path, strings.Replace(string(source), old, broken, 1)
}

func TestEachMutationFindsItsLine(t *testing.T) {
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.mistake, " ", "_"), func(t *testing.T) { mutate(t, m.file, m.old, m.broken) })
	}
}

// within is how long a simulation may take over a mutation. One that takes longer has found
// nothing: it may be slow. Stuck is after how long one that ends in seconds has not ended.
const (
	within = 10 * time.Minute
	stuck  = 2 * time.Minute
)

// on runs the simulation, and nothing else, on the source with an edit.
func (s simulation) on(t *testing.T, overlay string) (out string, err error) {
	t.Helper()
	timeout := within
	if s.endless {
		timeout = stuck
	}
	args := []string{"test", "-failfast", "-count=1", "-vet=off", "-timeout", timeout.String(), "-overlay", overlay, "-run", s.tests}
	env := os.Environ()
	if s.seeds > 0 {
		env = append(env, fmt.Sprintf("VOLFERRY_SEEDS=%d", s.seeds), "VOLFERRY_SEED=0")
	} else {
		args = append(args, "-short")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, s.pkg)...) //nolint:gosec // they are those above
	cmd.Dir, cmd.Env = "../..", env
	printed, err := cmd.CombinedOutput()
	return string(printed), err
}

// TestEachMutationIsFoundBySimulation needs no machine of its own, and minutes.
func TestEachMutationIsFoundBySimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-mutations")
	}
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.mistake, " ", "_"), func(t *testing.T) {
			path, mutated := mutate(t, m.file, m.old, m.broken)
			broken, overlay := filepath.Join(t.TempDir(), "broken.go"), filepath.Join(t.TempDir(), "overlay.json")
			replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: broken}})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(
				os.WriteFile(broken, []byte(mutated), 0o600),
				os.WriteFile(overlay, replaced, 0o600),
			); err != nil {
				t.Fatal(err)
			}
			out, err := m.by.on(t, overlay)
			switch {
			case err == nil:
				t.Errorf("%s of %s do not find it:\n%s", m.by.tests, m.by.pkg, out)
			case strings.Contains(out, "panic: test timed out") && !m.by.endless:
				t.Fatalf("%s of %s have not ended in %s:\n%s", m.by.tests, m.by.pkg, within, out)
			case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic:"):
				t.Fatalf("the tests did not run: %v\n%s", err, out)
			}
			for line := range strings.Lines(out) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "--- FAIL") {
					t.Logf("found by %s", line)
				}
			}
		})
	}
}
