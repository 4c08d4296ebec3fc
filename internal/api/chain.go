// SPDX-License-Identifier: Apache-2.0

package api

// ChainProblem is a disk that moves and whose images somebody else has changed.
type ChainProblem struct {
	// Message says in words what was changed.
	Message string `json:"message"`
	// Cure has the commands, in their order, that end it; it is empty where Message says what to
	// do, and at the registry, which passes on no commands of hosts.
	Cure string `json:"cure,omitempty"`
	// Guarded: the instance is kept from starting, since it would start without its newest writes.
	Guarded bool `json:"guarded"`
}
