// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// pauseCalls returns the hypervisor's calls from the last Suspend to the following Resume.
func (d *daemon) pauseCalls() []string {
	d.t.Helper()
	calls := d.world.Calls()
	for i, call := range slices.Backward(calls) {
		if n := slices.Index(calls[i:], "Resume"); call == "Suspend" && n > 0 {
			return calls[i : i+n+1]
		}
	}
	d.t.Fatalf("no pause in %v", calls)
	return nil
}

// The guest waits for each of them. DESIGN.md, section 12, has the reasons.
func TestThePauseOfASwitchMakesNoCallTooMany(t *testing.T) {
	toEnd := []string{
		"Suspend", "RunState", // pause
		"Domain", "Job", // drain
		"Domain", "SetConfigChain", // name_dst
		"Domain", "Job", "Pivot", "Domain", "OpenFiles", // pivot
		"RunState", "Resume", // resume
	}
	toSource := []string{
		"Suspend", "RunState", // pause
		"Domain", "Job", // drain
		"Domain", "Job", "Pivot", "Domain", "OpenFiles", // pivot
		"Domain", "OpenFiles", "Domain", // name_src
		"RunState", "Resume", // resume
	}
	for name, c := range map[string]struct {
		method string
		cancel bool
		want   []string
	}{
		"complete":             {move.MethodOverlay, false, toEnd},
		"complete of a mirror": {move.MethodMirror, false, toEnd},
		"cancel":               {move.MethodOverlay, true, toSource},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				if c.method == move.MethodMirror {
					d.until(d.migrateTo(mirrorToNewPool), api.MigrationCompleted)
				} else {
					d.ends(d.copied(), c.cancel)
				}
				if diff := cmp.Diff(c.want, d.pauseCalls()); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

func TestASwitchEndsWhateverBecameOfTheGuestBeforeItsResume(t *testing.T) {
	for name, act := range map[string]func(*daemon) error{
		"resumed by a person": func(d *daemon) error { return d.world.ResumeByUser(testInstance) },
		"dead":                func(d *daemon) error { return d.world.Crash(testInstance) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				d.journal.AfterAppend(func(r op.Record) {
					if r.Step == "resume" && r.Kind == op.EventStarted {
						d.journal.AfterAppend(nil)
						must(t, act(d))
					}
				})
				d.ends(mig, false)
			})
		})
	}
}
