// SPDX-License-Identifier: Apache-2.0

package hvtest

// Fault is something that happens once, at one call of the hypervisor.
type Fault struct {
	// Call is the name of the method, "Pivot"; empty is any.
	Call string
	// Nth counts the matching calls from now on; 0 and 1 are the next one.
	Nth int
	// After lets the call take effect first. The caller learns of it only
	// through Err.
	After bool
	// Err is what the call returns. Nil with a Do lets the call go on, nil
	// without one is hv.ErrUnavailable.
	Err error
	// Do happens at that moment. It may call any method of the Fake: to crash
	// the domain, to disconnect, to write as the guest.
	Do func()
}
