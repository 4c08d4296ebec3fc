// SPDX-License-Identifier: Apache-2.0

package hvtest

// Shutdown is what a guest does when it is asked to shut down, or to reboot.
type Shutdown string

// What a guest may do. A paused guest does nothing before it runs.
const (
	ShutdownObeys   Shutdown = "obeys"   // at the next look or Step; what a new domain's guest does
	ShutdownSlow    Shutdown = "slow"    // once it has been asked twice
	ShutdownIgnores Shutdown = "ignores" // it never does; for a guest that shuts down by itself see Stop
)

// Unplug is how a guest answers when it is asked to let go of a disk.
type Unplug string

// The answers of a guest.
const (
	UnplugAtOnce  Unplug = "at once" // what a new domain's guest does
	UnplugWaits   Unplug = "waits"   // until ReleaseDevice, if that is ever called
	UnplugRefuses Unplug = "refuses"
)
