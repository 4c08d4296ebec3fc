// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Inject adds a fault. Several faults at one call happen in the order of injection.
func (f *Fake) Inject(fault Fault) {
	if fault.Nth < 1 {
		fault.Nth = 1
	}
	if fault.Err == nil && fault.Do == nil {
		fault.Err = hv.ErrUnavailable
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault)
}

// ClearFaults removes the faults that have not happened yet.
func (f *Fake) ClearFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Calls returns the names of all calls so far, including failed ones.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// Disconnect makes every call fail with hv.ErrUnavailable until Reconnect. The domains and their
// jobs continue. To lose the answer of a call that takes effect, inject a Fault with After, and
// with Disconnect as its Do.
func (f *Fake) Disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feed.Publish(hv.Event{Kind: hv.EventDisconnected})
}

// Reconnect ends Disconnect.
func (f *Fake) Reconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feed.Publish(hv.Event{Kind: hv.EventConnected})
}

func (f *Fake) call(ctx context.Context, name string, effect func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	due := f.dueFaults(name)
	f.mu.Unlock()
	if err := happen(due, false); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := f.act(ctx, effect); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := happen(due, true); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !f.Up() {
		return fmt.Errorf("%s: %w", name, hv.ErrUnavailable)
	}
	return nil
}

func (f *Fake) act(ctx context.Context, effect func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", hv.ErrUnavailable, err)
	}
	if !f.feed.Up() {
		return hv.ErrUnavailable
	}
	return effect()
}

func (f *Fake) dueFaults(name string) []*Fault {
	var due, rest []*Fault
	for _, fault := range f.faults {
		if fault.Call != "" && fault.Call != name {
			rest = append(rest, fault)
			continue
		}
		fault.Nth--
		if fault.Nth == 0 {
			due = append(due, fault)
		} else {
			rest = append(rest, fault)
		}
	}
	f.faults = rest
	return due
}

func happen(faults []*Fault, after bool) error {
	for _, fault := range faults {
		if fault.After != after {
			continue
		}
		if fault.Do != nil {
			fault.Do()
		}
		if fault.Err != nil {
			return fault.Err
		}
	}
	return nil
}
