// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var powerTests = map[string]func(*testing.T, *bench){
	"PowerOnStartsWhatIsOff":                     testPowerOn,
	"PowerOnIsRefusedByTheHookInItsWords":        testPowerOnGuarded,
	"PowerOnDoesNotTakeAnImageFromAnotherDomain": testPowerOnInUse,
	"GuestsAreAskedToShutDownAndToReboot":        testAskGuest,
	"PowerOverWhatIsNotThereSaysNotFound":        testPowerNotFound,
}

func testPowerOn(t *testing.T, b *bench) {
	id := b.define(t, nil, b.image(t, "src.raw", Raw))
	want := func(state hv.State) {
		t.Helper()
		ok(t, b.hv.PowerOn(t.Context(), id))
		if d := b.read(t, id); d.State != state || d.LiveDisk("vda") == nil {
			t.Errorf("after PowerOn the domain is %s, want %s; disks %+v", d.State, state, d.Live)
		}
	}
	want(hv.StateRunning)
	run := b.read(t, id).Run
	want(hv.StateRunning)
	ok(t, b.hv.Suspend(t.Context(), id))
	want(hv.StatePaused)
	if got := b.read(t, id).Run; got != run {
		t.Errorf("PowerOn of an active domain made another process of it: %d, then %d", run, got)
	}
}

func testPowerOnGuarded(t *testing.T, b *bench) {
	id := b.define(t, nil, b.image(t, "src.raw", Raw))
	const why = "the root volume of web is missing"
	allow := b.Refuse(t, id, why)
	err := b.hv.PowerOn(t.Context(), id)
	if !errors.Is(err, hv.ErrGuarded) || !strings.Contains(err.Error(), why) {
		t.Errorf("PowerOn = %v, want ErrGuarded and %q", err, why)
	}
	if d := b.read(t, id); d.State != hv.StateStopped {
		t.Errorf("a domain that was refused is %s", d.State)
	}
	allow()
	ok(t, b.hv.PowerOn(t.Context(), id))
}

func testPowerOnInUse(t *testing.T, b *bench) {
	g := b.start(t)
	id := b.define(t, nil, g.src)
	if err := b.hv.PowerOn(t.Context(), id); !errors.Is(err, hv.ErrInUse) {
		t.Errorf("PowerOn with the image of another domain = %v, want ErrInUse", err)
	}
	if d := b.read(t, id); d.State != hv.StateStopped {
		t.Errorf("a domain without its image is %s", d.State)
	}
	g.GuestWrite(t, g.id, "vda", 1, 2)
}

// testAskGuest only checks that the guest gets the request: guests of the suite may have no
// operating system.
func testAskGuest(t *testing.T, b *bench) {
	g := b.start(t)
	ok(t, b.hv.RebootGuest(t.Context(), g.id))
	ok(t, b.hv.Shutdown(t.Context(), g.id))
	ok(t, b.hv.PowerOff(t.Context(), g.id))
	ok(t, b.hv.Shutdown(t.Context(), g.id))
	if err := b.hv.RebootGuest(t.Context(), g.id); !errors.Is(err, hv.ErrNotActive) {
		t.Errorf("RebootGuest of a domain that is off = %v, want ErrNotActive", err)
	}
	ok(t, b.hv.PowerOn(t.Context(), g.id))
	if d := g.domain(t); d.State != hv.StateRunning {
		t.Errorf("a request from before the start makes it %s", d.State)
	}
}

func testPowerNotFound(t *testing.T, b *bench) {
	nobody := uuid.NewString()
	for call, err := range map[string]error{
		"PowerOn":     b.hv.PowerOn(t.Context(), nobody),
		"Shutdown":    b.hv.Shutdown(t.Context(), nobody),
		"RebootGuest": b.hv.RebootGuest(t.Context(), nobody),
	} {
		if !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("%s = %v, want ErrNotFound", call, err)
		}
	}
}
