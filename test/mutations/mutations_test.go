// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	steps    = "daemon/internal/migrate/steps/"
	barriers = "registry/internal/workflow/pause_barriers.go"
	moves    = "./daemon/internal/migrate"
	pauses   = "./registry/internal/pauseall"
)

// mutations are edits of the source, each with the mistake that it is, and the package whose
// simulations find it.
var mutations = []struct{ mistake, file, old, broken, simulation string }{
	{"the pivot comes before the definition names dst", steps + "plans.go", "e.stepNameEnd(toDst),\n\t\te.stepPivot(toDst),\n\t\te.stepResume", "e.stepPivot(toDst),\n\t\te.stepNameEnd(toDst),\n\t\te.stepResume", moves},
	{"the definition names a dst that a job in the background writes, before the pivot", steps + "plans.go", "e.stepCopyBehind()}, e.switchBehindJob(toDst)...", "e.stepCopyBehind()}, e.mirrorToDst()[1:]...", moves},
	{"the guest is resumed before the pivot", steps + "plans.go", "e.stepPivot(toDst),\n\t\te.stepResume(toSwitch),\n\t\te.stepSettle", "e.stepResume(toSwitch),\n\t\te.stepPivot(toDst),\n\t\te.stepSettle", moves},
	{"libvirt's word is believed alone", steps + "witness.go", "	switch {\n	case !disk.active:\n		return !o.src && !o.overlay && !o.dst", "	if true {\n		return true\n	}\n	switch {\n	case !disk.active:\n		return !o.src && !o.overlay && !o.dst", moves},
	{"the pivot is not observed", steps + "step_pivot.go", "return provided(step(pivotStep", "observe = nil\n\treturn provided(step(pivotStep", moves},
	{"a guest that may be on either of two images that differ is resumed", steps + "step_pause.go", "|| disagreed.oneSided && w == toSwitch", "", moves},
	{"a guest that a person has paused is resumed", steps + "step_pause.go", "err != nil || !note.Resume {", "err != nil {", moves},
	{"dst is not flushed at the end", steps + "step_pivot.go", "e.images.Flush(ctx, to.image(s).Path)", "error(nil)", moves},
	{"an overlay is folded into a src that was written since", steps + "seal.go", "!now.WrittenSince(*p.Seal) {", "!now.WrittenSince(*p.Seal) || true {", moves},
	{"guests run on before all are restored", barriers, "case PauseReady, PauseRestored:", "case PauseReady, PauseRestored, PauseSaved:", pauses},
	{"a fenced host does not say what it was told", "daemon/internal/uplink/run.go", "if reportFirst(err) {", "if false {", "./daemon/internal/uplink"},
}

// mutate returns the path of the file that a mutation edits, and the file with the edit. The text has to be there
// once, so that code which has changed since is not left without its mutation.
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
			cmd := exec.CommandContext(t.Context(), "go", "test", "-short", "-failfast", "-count=1", "-vet=off", "-overlay", overlay, m.simulation)
			cmd.Dir = "../.."
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Error("no test finds it")
			case !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "panic:"):
				t.Fatalf("the tests did not run: %v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "--- FAIL") {
					t.Logf("found by %s", strings.TrimSpace(line))
				}
			}
		})
	}
}
