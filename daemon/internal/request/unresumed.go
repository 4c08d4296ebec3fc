// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Unresumed records why libvirt does not resume guests that Volferry has paused. The caller
// chooses a guest's name, for example the instance id. The record is only in memory: after a
// restart the op tries again to resume the guest.
type Unresumed struct {
	// Changed, if not nil, is called with the name of a guest when its text has changed.
	Changed func(name string)

	mu     sync.Mutex
	guests map[string]unresumed
}

type unresumed struct {
	text  string
	tries int
}

// quickResumes is how many attempts to resume a guest are made at intervals of BusyDelay. After
// them the op waits for WaitResume.
const quickResumes = 10

// Ended records the result err of a resume. reason is why the guest was paused. It returns an
// error that makes the runner repeat the resume until it succeeds, before any other step.
func (u *Unresumed) Ended(name, instance, reason string, err error) error {
	if err == nil || errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
		u.set(name, "")
		return err
	}
	refused := api.Errorf(api.CodeInstanceBusy, "instance %s was paused for %s, and libvirt does not resume it: %v; it is tried again every few seconds: once that has ended, the guest goes on by itself",
		instance, reason, err)
	tries := u.set(name, refused.Message)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return HV(err)
	case tries <= quickResumes:
		return op.Retry(BusyDelay, refused)
	}
	return op.WaitFor(WaitResume, refused)
}

// Runs records that a guest is not paused.
func (u *Unresumed) Runs(name string) { u.set(name, "") }

// Text returns why libvirt does not resume a guest, or "".
func (u *Unresumed) Text(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.guests[name].text
}

// All returns the texts of all guests.
func (u *Unresumed) All() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(u.guests)) {
		texts = append(texts, u.guests[name].text)
	}
	return texts
}

func (u *Unresumed) set(name, text string) (tries int) {
	u.mu.Lock()
	was := u.guests[name]
	delete(u.guests, name)
	if text != "" {
		tries = was.tries + 1
		if u.guests == nil {
			u.guests = map[string]unresumed{}
		}
		u.guests[name] = unresumed{text, tries}
	}
	u.mu.Unlock()
	if was.text != text && u.Changed != nil {
		u.Changed(name)
	}
	return tries
}
