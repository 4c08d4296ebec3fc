// SPDX-License-Identifier: Apache-2.0

package hv

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	// EventConnected: the connection is up, and events of the time without it are lost:
	// read everything again.
	EventConnected    EventKind = "connected"
	EventDisconnected EventKind = "disconnected"
	// EventLifecycle: a domain was defined, undefined, started, suspended,
	// resumed, stopped, ...; Detail names it.
	EventLifecycle EventKind = "lifecycle"
	// EventIOError: the hypervisor met an I/O error on a disk; Detail is the
	// reason (enospc or empty), Paused says that the domain was stopped by it.
	EventIOError EventKind = "io_error"
	// EventBlockJob: a block job became ready or ended. A hint to look, never
	// a proof.
	EventBlockJob EventKind = "block_job"
	// EventDeviceRemoved: a guest let go of a device, or refused to (Detail is
	// then failed).
	EventDeviceRemoved EventKind = "device_removed"
)

// Event is a hint that something changed. Nothing may be decided from an event or from its
// absence. Path is the image of a job or of an I/O error, and empty in other events: which
// device was removed is seen in Domain.
type Event struct {
	Kind     EventKind
	DomainID string
	Path     string
	Detail   string
	Paused   bool
}
