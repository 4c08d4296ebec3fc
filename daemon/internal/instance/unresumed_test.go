// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

func TestASuspendedGuestThatLibvirtDoesNotResumeIsShownAtOnceAndGoesOnByItself(t *testing.T) {
	for name, byOwner := range map[string]bool{"by itself": false, "resumed by its owner": true} {
		t.Run(name, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				w := d.world
				w.UseLockManager("")
				wantState(t, d.suspend("suspend", pausedWeb), op.StateDone, "")
				w.LeaseElsewhere(pausedSrc, true)
				_, err := d.now().BeginResume(t.Context(), "resume", pausedWeb, api.InstanceResume{MigrationID: pausedMig, VolumeID: pausedVol, Location: w.location(pausedSrc)})
				must(t, err)
				pass(time.Second)
				synctest.Wait()
				shown := d.now().Unresumed()
				if len(shown) != 1 || !strings.Contains(shown[0], "instance web was paused for the move of volume") || !strings.Contains(shown[0], "is locked") {
					t.Errorf("%q does not say why the guest is paused", shown)
				}
				pass(10 * time.Minute)
				synctest.Wait()
				if st, err := d.now().admission.Runner.Status(t.Context(), "resume"); err != nil || st.Waiting != request.WaitResume {
					t.Errorf("after ten minutes the op is %s, and waits for %q: %v", st.State, st.Waiting, err)
				}
				w.LeaseElsewhere(pausedSrc, false)
				if byOwner {
					must(t, w.ResumeByUser(pausedWeb))
				}
				wantState(t, d.resume("resume", pausedWeb, pausedSrc), op.StateDone, "")
				must(t, w.as(pausedWeb, hv.StateRunning, pausedSrc))
				if shown := d.now().Unresumed(); len(shown) > 0 {
					t.Errorf("the guest runs, and is shown so: %q", shown)
				}
			}, hv.StateRunning)
		})
	}
}
