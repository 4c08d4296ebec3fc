// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"cmp"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// PowerInput is the input of ops that change only whether an instance runs.
type PowerInput struct {
	Subject
	Stopping
}

// Stopping has the options of a stop.
type Stopping struct {
	Force          bool `json:"force,omitempty"`
	TimeoutSeconds int  `json:"timeout_seconds,omitempty"`
}

const defaultStopTimeout = 120 * time.Second

// Timeout returns how long the guest may take to shut down.
func (s Stopping) Timeout() time.Duration {
	return cmp.Or(time.Duration(s.TimeoutSeconds)*time.Second, defaultStopTimeout)
}

// Check refuses contradictory options.
func (s Stopping) Check() error {
	return api.InstanceStop(s).Check()
}
