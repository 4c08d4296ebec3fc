// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// A person starts the instance with virsh while its root volume is detached. In
// every round one of the two comes to pass, whole, and the other is refused.
func TestRootDetachAndVirshStartExcludeEachOther(t *testing.T) {
	leftToTestE2E(t)
	rounds := 20
	if os.Getenv(crash.Env) == "all" {
		rounds = 1000
	}
	h := sharedHost(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw))
	root := g.rootVolume(t)
	started := 0
	for round := range rounds {
		// From well before to well after, and most of them close, in no order.
		const stride = 7 // prime to the number of rounds
		x := 2*float64(round*stride%rounds)/float64(rounds-1) - 1
		lead := time.Duration(x * x * x * float64(500*time.Millisecond))
		lead += rand.N(10 * time.Millisecond)
		if g.raceForRoot(t, root, lead) {
			started++
		}
		if t.Failed() {
			t.Fatalf("round %d, virsh %s behind the detach", round, lead)
		}
	}
	t.Logf("%d rounds: started with its root %d times, detached %d times", rounds, started, rounds-started)
	if started == 0 || started == rounds {
		t.Error("there was no race")
	}
	root.assertUntouched(t)
	g.assertSettled(t)
}

// raceForRoot runs a detach of the root and, lead after it, a virsh start, and claims
// that one of them won. It leaves the instance off, with its root, and reports whether
// it was started.
func (g *guest) raceForRoot(t *testing.T, root *volume, lead time.Duration) (started bool) {
	t.Helper()
	virsh := make(chan error, 1)
	go func() {
		<-time.After(max(0, lead))
		// Paused: a guest that boots would cost what the others need.
		_, err := g.host.Libvirtd.Virsh(t.Context(), "start", "--paused", g.Name)
		virsh <- err
	}()
	<-time.After(max(0, -lead))
	_, detachErr := g.host.Ctl(t.Context(), "-o", "json", "--progress", "none", "volume", "detach", root.name, g.Name)
	startErr := <-virsh
	switch {
	case startErr == nil && detachErr != nil:
		mustHaveFailed(t, detachErr, api.CodeRootDetachForbidden.ExitStatus(), api.CodeRootDetachForbidden)
		g.runsWithItsRoot(t)
		g.destroy(t)
		return true
	case startErr != nil && detachErr == nil:
		mustContain(t, startErr.Error(), withoutRoot)
		g.isOffWithoutRoot(t)
		g.attachRoot(t, root)
		return false
	}
	t.Fatalf("virsh start: %v; detach: %v", startErr, detachErr)
	return false
}

func (g *guest) runsWithItsRoot(t *testing.T) {
	t.Helper()
	for _, flags := range [][]string{nil, {"--inactive"}} {
		slots := g.host.slotsOf(t, g.Name, flags...)
		if i := slices.IndexFunc(slots, func(s slot) bool { return s.Target == "vda" }); i < 0 || slots[i].Source != g.slots[0].Source {
			t.Errorf("virsh dumpxml %s: the guest runs and has %+v", strings.Join(flags, " "), slots)
		}
	}
	if diff := cmp.Diff(g.slots, g.persistentSlots(t)); diff != "" {
		t.Errorf("disks of guest %s (-want +got):\n%s", g.Name, diff)
	}
	if g.isGuarded(t) {
		t.Error("the instance has its root and is guarded")
	}
}

func (g *guest) isOffWithoutRoot(t *testing.T) {
	t.Helper()
	slots := g.persistentSlots(t)
	if state := g.state(t); state != "shut off" || slices.ContainsFunc(slots, func(s slot) bool { return s.Target == "vda" }) {
		t.Errorf("the root is detached and the guest is %s, with %+v", state, slots)
	}
	if !g.isGuarded(t) {
		t.Error("the instance has no root and is not guarded")
	}
}

func (g *guest) isGuarded(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.host.Guards(), g.UUID))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(text) > 0
}
