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

// Unresumed has the guests that an op has paused and that libvirt does not resume, by the caller's
// names. It is in memory: after a restart the op tries again.
type Unresumed struct {
	// Changed is called with the name of a guest with a changed text; it may be nil.
	Changed func(name string)

	mu     sync.Mutex
	guests map[string]unresumed
}

// unresumed has the reason of a failed resume and the number of attempts.
type unresumed struct {
	text  string
	tries int
}

// quickResumes is the number of attempts at intervals of BusyDelay. Later attempts follow the
// schedule of waiting ops.
const quickResumes = 10

// Ended records the result of a call that resumes a guest. Reason is why the guest was paused. The
// returned error makes the runner repeat the call until it succeeds, because no other step may
// begin before.
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

// Runs records that a guest is not paused any more.
func (u *Unresumed) Runs(name string) { u.set(name, "") }

// Text returns the reason why libvirt does not resume a paused guest; "" for other guests.
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

// set records the reason of a failed resume; an empty text removes the guest. It returns the number
// of failed attempts.
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
