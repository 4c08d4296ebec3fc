// SPDX-License-Identifier: Apache-2.0

package hv

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	// EventConnected: the connection is up. Earlier events are lost: read everything again.
	EventConnected    EventKind = "connected"
	EventDisconnected EventKind = "disconnected"
	// EventLifecycle: a domain was defined, undefined, started, suspended, resumed, stopped, ...;
	// Detail names the change.
	EventLifecycle EventKind = "lifecycle"
	// EventIOError: the hypervisor met an I/O error on a disk. Detail is the reason (enospc or
	// empty). Paused: the error has paused the domain.
	EventIOError EventKind = "io_error"
	// EventBlockJob: a block job became ready or ended.
	EventBlockJob EventKind = "block_job"
	// EventDeviceRemoved: a guest released a device, or refused to (Detail is then failed).
	EventDeviceRemoved EventKind = "device_removed"
)

// Event is a hint that something changed: decide nothing from an event or from its absence. Path
// is the image of a job or of an I/O error. The event does not show which device was removed: read
// the domain.
type Event struct {
	Kind     EventKind
	DomainID string
	Path     string
	Detail   string
	Paused   bool
}
