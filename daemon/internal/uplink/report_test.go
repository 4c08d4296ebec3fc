// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

func TestADomainThatStartsIsNotReportedInError(t *testing.T) {
	u := &Uplink{}
	for n, step := range []struct {
		state hv.State
		told  bool
	}{
		{hv.StateStopped, true},
		{hv.StateOther, false},
		{hv.StateRunning, true},
		{hv.StateOther, false},
		{hv.StateOther, true},
		{hv.StateOther, true},
		{hv.StateStopped, true},
		{hv.StateOther, false},
	} {
		doms := []hv.Domain{{ID: "a", State: step.state}, {ID: "b", State: hv.StateRunning}}
		told := u.settled(doms)
		if len(doms) != 2 || !slices.ContainsFunc(told, func(d hv.Domain) bool { return d.ID == "b" }) {
			t.Fatalf("report %d: of %v are told %v", n, doms, told)
		}
		if got := slices.ContainsFunc(told, func(d hv.Domain) bool { return d.ID == "a" }); got != step.told {
			t.Errorf("report %d: %s is told: %t", n, step.state, got)
		}
	}
}

// Its state will not change by itself, and the registry decides by the state paused.
func TestAGuestThatStandsStillIsReportedAtOnceAsPausedAndWhy(t *testing.T) {
	u := &Uplink{}
	for why, want := range map[hv.PauseReason]api.InstanceState{hv.PauseAsleep: api.InstanceAsleep, hv.PauseCrashed: api.InstanceCrashed} {
		told := u.settled([]hv.Domain{{ID: "a", State: hv.StateOther, PauseReason: why}})
		if len(told) != 1 {
			t.Fatalf("%s: it is not told", why)
		}
		if state, standstill := instance.Reported(&told[0]); state != api.InstancePaused || standstill != want {
			t.Errorf("%s: it is reported as %s, %q", why, state, standstill)
		}
	}
}

// libvirt includes the filesystem's reserved blocks, in a number from the pool's last refresh.
func TestAPoolHasTheRoomThatItsFilesystemHas(t *testing.T) {
	dir := t.TempDir()
	free, err := location.DirFreeBytes(dir)
	if err != nil {
		t.Fatal(err)
	}
	const libvirts = 1
	u := &Uplink{}
	for _, p := range []struct {
		what string
		pool hv.PoolInfo
		of   bool // the number is from the filesystem
	}{
		{"files", hv.PoolInfo{Type: "dir", Path: dir, Active: true, FreeBytes: libvirts}, true},
		{"files of a pool that is not active", hv.PoolInfo{Type: "dir", Path: dir, FreeBytes: libvirts}, false},
		{"files in a directory that is gone", hv.PoolInfo{Type: "dir", Path: dir + "/gone", Active: true, FreeBytes: libvirts}, false},
		{"logical volumes", hv.PoolInfo{Type: "logical", Path: dir, Active: true, FreeBytes: libvirts}, false},
	} {
		got := u.poolOf(p.pool).FreeBytes
		// Other programs write to the filesystem, too.
		if p.of && (got < free/2 || got > free*2) || !p.of && got != libvirts {
			t.Errorf("%s: %d bytes free; the filesystem has %d, libvirt said %d", p.what, got, free, libvirts)
		}
	}
}

func TestWhoTellsOfAnInstanceHearsThatLibvirtDidNot(t *testing.T) {
	bubble(t, func(w *world) {
		w.open()
		w.must(w.up.ReportNow(w.t.Context()))
		w.fake.Disconnect()
		if err := w.up.ReportNow(w.t.Context()); !errors.Is(err, hv.ErrUnavailable) {
			t.Errorf("without libvirt the host was told of: %v", err)
		}
		w.fake.Reconnect()
		w.registry.SetDown(true)
		w.must(w.up.ReportNow(w.t.Context()))
	})
}

// A fast-changing host may report more often than the registry accepts. That is no outage: reads
// and operations continue.
func TestAReportThatIsRefusedForItsRateIsNoOutage(t *testing.T) {
	bubble(t, func(w *world) {
		w.start()
		pass(time.Second)
		w.registry.set(func() { w.registry.tooOften = true })
		w.must(w.fake.PowerOff(w.t.Context(), web))
		w.up.Changed()
		pass(10 * time.Second)
		if !w.up.Up() {
			t.Errorf("the registry counts as away: %v", w.up.Err())
		}
		before, after := 0, 0
		w.registry.set(func() { before, w.registry.tooOften = len(w.registry.reports), false })
		pass(retryEvery + time.Second)
		w.registry.set(func() { after = len(w.registry.reports) })
		if after == before {
			t.Error("the report was not sent again")
		}
		w.kill()
	})
}

func TestWhoTellsOfAnInstanceHasAReportThatWasPutOffSentAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.start()
		pass(time.Second)
		w.registry.set(func() { w.registry.tooOften = true })
		w.must(w.fake.PowerOff(w.t.Context(), web))
		time.AfterFunc(time.Second, func() { w.registry.set(func() { w.registry.tooOften = false }) })
		w.must(w.up.ReportNow(w.t.Context()))
		var told []api.InstanceReport
		w.registry.set(func() { told = w.registry.whole.Instances })
		if !slices.ContainsFunc(told, func(i api.InstanceReport) bool { return i.ID == web && i.State == api.InstanceStopped }) {
			t.Errorf("the registry was told of %+v", told)
		}
		w.kill()
	})
}
