// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/internal/api"
)

// An operator starts the instance with virsh while its root is detached, a thousand times; on
// several hosts at once, because a round is mostly waiting.
func TestADetachOfARootAndAStartExcludeEachOther(t *testing.T) {
	hosts, rounds := 10, 100
	if testing.Short() { // for the race detector
		rounds = 20
	}
	var started, refused atomic.Int64
	t.Run("hosts", func(t *testing.T) {
		for host := range hosts {
			t.Run(fmt.Sprint(host), func(t *testing.T) {
				t.Parallel()
				w := newRootWorld(t, true)
				w.guardPort = guard.New(filepath.Join(t.TempDir(), "guards"), guard.DefaultHook)
				w.OnStart = func(string) error { // it reads them as the real hook does
					if why := w.guarded(); why != "" {
						return errors.New(why)
					}
					return nil
				}
				d := startDaemon(t, w)
				for round := range rounds {
					delay := time.Duration(round*hosts+host) % 100 * 20 * time.Microsecond // spread over the whole detach
					if d.raced(t, fmt.Sprint(round), delay) {
						started.Add(1)
					} else {
						refused.Add(1)
					}
				}
				must(t, w.settled())
			})
		}
	})
	t.Logf("started with its root %d times, detached %d times", started.Load(), refused.Load())
	if started.Load() == 0 || refused.Load() == 0 {
		t.Error("there was no race")
	}
}

// raced detaches the root while the instance is started after the delay. It fails the test unless
// exactly one succeeds, leaves the instance off with its root, and reports whether it was started.
func (d *daemon) raced(t *testing.T, round string, delay time.Duration) (started bool) {
	t.Helper()
	w := d.world
	virsh := make(chan error, 1)
	time.AfterFunc(delay, func() { virsh <- w.Start(web) })
	_, detachErr := d.detach("detach "+round, web)
	startErr := <-virsh
	dom, err := w.Fake.Domain(t.Context(), web)
	must(t, err)
	switch guarded := w.guarded() != ""; {
	case startErr == nil && api.CodeOf(detachErr) == api.CodeRootDetachForbidden && !guarded &&
		dom.LiveDisk("vda") != nil && dom.ConfigDisk("vda") != nil:
		must(t, w.Destroy(web))
		return true
	case startErr != nil && detachErr == nil && guarded && !dom.State.Active() && dom.ConfigDisk("vda") == nil:
		must(t, failed(d.attach("attach "+round, attachAsRoot)))
		return false
	default:
		t.Fatalf("round %s: start: %v, detach: %v, guarded: %t, running with %+v, defined with %+v", round, startErr, detachErr, guarded, dom.Live, dom.Config)
		return false
	}
}
