// SPDX-License-Identifier: Apache-2.0

package hvtest

// Fault is something that happens once, at one call of the hypervisor.
type Fault struct {
	// Call is the name of the method, such as "Pivot"; empty means any.
	Call string
	// Nth counts the matching calls from now on; 0 and 1 mean the next one.
	Nth int
	// After lets the call take effect first. The caller only sees Err.
	After bool
	// Err is the error of the call. With a Do, nil lets the call continue; without one, nil means
	// hv.ErrUnavailable.
	Err error
	// Do happens at that moment. It may call any method of the Fake.
	Do func()
}
