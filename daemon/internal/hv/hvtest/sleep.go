// SPDX-License-Identifier: Apache-2.0

package hvtest

import "github.com/volferry/volferry/daemon/internal/hv"

// StandStill plays a running guest that goes to sleep or crashes. The process stays, and libvirt
// can neither pause nor resume the guest.
func (f *Fake) StandStill(id string, why hv.PauseReason) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err == nil {
		dom.State, dom.PauseReason = hv.StateOther, why
	}
	return err
}

// Wake plays a guest that wakes up, or is reset after a crash.
func (f *Fake) Wake(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err == nil && dom.State == hv.StateOther {
		dom.State, dom.PauseReason = hv.StateRunning, ""
	}
	return err
}
