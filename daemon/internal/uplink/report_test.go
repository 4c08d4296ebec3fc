// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"errors"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
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

func TestWhoTellsOfAnInstanceHearsThatLibvirtDidNot(t *testing.T) {
	bubble(t, func(w *world) {
		w.open()
		w.must(w.up.Tell(w.t.Context()))
		w.fake.Disconnect()
		if err := w.up.Tell(w.t.Context()); !errors.Is(err, hv.ErrUnavailable) {
			t.Errorf("without libvirt the host was told of: %v", err)
		}
		w.fake.Reconnect()
		w.registry.set(func() { w.registry.down = true })
		w.must(w.up.Tell(w.t.Context()))
	})
}
