// SPDX-License-Identifier: Apache-2.0

package workflow

import "github.com/volferry/volferry/internal/api"

// LiveNext returns what a host is to be asked for now, and whether there is anything: in its
// phase the move may want nothing of it, or it has done that.
func (p Pause) LiveNext(h LiveHost) (LiveCall, bool) {
	verb, known := wanted[p.Phase]
	ends := verb == LiveUntrack // and a host that cannot do that any more is not waited for
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

// LiveReady reports whether all hosts have done what the phase asks them for. A host of which
// it is not known whether its last call is over has not (R6 of package liveshared), unless
// it was fenced and is to end only.
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

// MayWake reports whether the guests of a host may be woken: where a bitmap was, the host was
// asked to clear that away, and has done it or has failed to.
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
