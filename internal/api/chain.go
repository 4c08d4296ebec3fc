// SPDX-License-Identifier: Apache-2.0

package api

// ChainProblem describes a moving volume's disk if another program has changed the disk's images.
type ChainProblem struct {
	Message string `json:"message"`
	// Cure has the commands that solve the problem, in order. It is empty if Message has the
	// advice, and at the registry.
	Cure string `json:"cure,omitempty"`
	// Guarded: a guard refuses the start of the instance, because the guest would lack its newest
	// writes.
	Guarded bool `json:"guarded"`
}
