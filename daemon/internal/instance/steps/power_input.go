// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// PowerInput is the input of every op that only changes whether an instance runs.
type PowerInput struct {
	Subject
	Stopping
}

// Stopping says how an instance is stopped.
type Stopping struct {
	// Force cuts the power without asking the guest.
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

const defaultStopTimeout = 120 * time.Second

// timeout is how long the guest has to obey.
func (s Stopping) timeout() time.Duration {
	return cmp.Or(time.Duration(s.TimeoutSeconds)*time.Second, defaultStopTimeout)
}

// Check refuses what makes no sense by itself.
func (s Stopping) Check() error {
	return api.InstanceStop(s).Check()
}
