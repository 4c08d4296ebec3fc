// SPDX-License-Identifier: Apache-2.0

package workflow

import "github.com/volferry/volferry/internal/api"

// LiveNext returns the next call to a host. It returns false if the move needs no call in its
// phase, or if the host has completed that call.
func (p Pause) LiveNext(h LiveHost) (LiveCall, bool) {
	verb, known := wanted[p.Phase]
	ends := verb == LiveUntrack // a fenced host need not end it
	switch {
	case !known, verb == LiveMake && h.ID != p.CopyHost.ID, ends && (h.Fenced || !h.touched()):
		return LiveCall{}, false
	}
	want := p.Live.call(verb)
	if h.Call.again(want) && h.State == LiveDone {
		return LiveCall{}, false
	}
	return h.next(want), true
}

// LiveReady reports whether all hosts have completed the action of the phase. A call with an
// unknown result counts as not completed (R6 of package sharedmove). A fenced host need not end
// its tracking of writes.
func (p Pause) LiveReady() bool {
	for _, h := range p.Live.Hosts {
		if _, left := p.LiveNext(h); left {
			return false
		}
	}
	return true
}

func (p Pause) notReady() error {
	return api.Errorf(api.CodeConflict, "not all hosts of migration %s have done what phase %s asks of them", p.Migration.ID, p.Phase).With("phase", p.Phase)
}

// MayWake reports whether the guests of a host may be restored. If the host may have dirty bitmaps
// of the move, a call to remove them must have succeeded or failed before.
func (p Pause) MayWake(hostID string) bool {
	if p.Live == nil || p.Phase != PauseRestoring && p.Phase != PauseCancelling {
		return true
	}
	for _, h := range p.Live.Hosts {
		if _, left := p.LiveNext(h); left && h.ID == hostID && (h.Call.Verb != LiveUntrack || h.State == LiveAsked) {
			return false
		}
	}
	return true
}
