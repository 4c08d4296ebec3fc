// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// powerInput is the input of every op that only changes whether an instance runs.
type powerInput struct {
	subject
	stopping
}

// stopping is how an instance is stopped.
type stopping struct {
	// Force cuts the power without asking the guest.
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

const defaultStopTimeout = 120 * time.Second

// timeout is how long the guest has to obey.
func (s stopping) timeout() time.Duration {
	return cmp.Or(time.Duration(s.TimeoutSeconds)*time.Second, defaultStopTimeout)
}

func (s stopping) check() error {
	return api.InstanceStop(s).Check()
}
