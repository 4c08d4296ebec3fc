// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/internal/api"
)

// forget forgets the instance at the registry's own socket.
func (w *world) forget() {
	w.registry.set(func() {
		w.registry.instances = slices.DeleteFunc(w.registry.instances, func(i api.Instance) bool { return i.ID == web })
	})
}

func TestTheRootGuardOfAnInstanceGoesWhenTheRegistryHasForgottenIt(t *testing.T) {
	for name, defined := range map[string]bool{"its domain is there": true, "its domain was undefined": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.must(w.guards.Set(web, guard.OwnerRoot, "no root"))
				w.must(w.fake.Destroy(web))
				if !defined {
					w.must(w.fake.Undefine(web))
				}
				w.start()
				pass(time.Minute)
				if has, _ := w.guards.Has(web, guard.OwnerRoot); !has {
					t.Error("the registry has it, and its guard is gone")
				}
				w.forget()
				pass(2 * time.Minute)
				if has, _ := w.guards.Has(web, guard.OwnerRoot); has {
					t.Error("the registry has forgotten it, and it is still guarded")
				}
				w.kill()
			})
		})
	}
}

func TestAnInstanceThatIsForgottenHereLosesItsRootGuardAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.must(w.guards.Set(web, guard.OwnerRoot, "no root"))
		w.start()
		pass(time.Minute)
		w.forget()
		w.up.Forgotten(t.Context(), web)
		if has, _ := w.guards.Has(web, guard.OwnerRoot); has {
			t.Error("it is still guarded")
		}
		w.kill()
	})
}

func TestAGuardOfAnotherOwnerIsNoForgottenRoots(t *testing.T) {
	bubble(t, func(w *world) {
		w.must(w.guards.Set(web, guard.OwnerShelf, "on the shelf"))
		w.start()
		pass(time.Minute)
		w.forget()
		pass(2 * time.Minute)
		if has, _ := w.guards.Has(web, guard.OwnerShelf); !has {
			t.Error("an instance that is another host's now can be started here")
		}
		w.kill()
	})
}

func TestNoGuardIsClearedWhileTheRegistryIsAway(t *testing.T) {
	bubble(t, func(w *world) {
		w.must(w.guards.Set(web, guard.OwnerRoot, "no root"))
		w.start()
		pass(time.Minute)
		w.forget()
		w.registry.SetDown(true)
		w.up.Forgotten(t.Context(), web)
		pass(2 * time.Minute)
		if has, _ := w.guards.Has(web, guard.OwnerRoot); !has {
			t.Error("nobody could tell that the registry has forgotten it, and its guard is gone")
		}
		w.kill()
	})
}
