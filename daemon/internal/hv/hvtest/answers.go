// SPDX-License-Identifier: Apache-2.0

package hvtest

// Shutdown is how a guest reacts to a request to shut down or reboot.
type Shutdown string

// The reactions of a guest. A paused guest does nothing before it runs.
const (
	ShutdownObeys   Shutdown = "obeys" // at the next look or Step; the default
	ShutdownSlow    Shutdown = "slow"  // after the second request
	ShutdownIgnores Shutdown = "ignores"
)

// Unplug is how a guest answers a request to release a disk.
type Unplug string

// The answers of a guest.
const (
	UnplugAtOnce  Unplug = "at once" // the default
	UnplugWaits   Unplug = "waits"   // until ReleaseDevice, if that is ever called
	UnplugRefuses Unplug = "refuses"
)
