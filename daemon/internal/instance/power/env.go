// SPDX-License-Identifier: Apache-2.0

// Package power has the steps that start, stop, reboot, pause and unpause instances, and the checks
// before them.
package power

import (
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/location"
)

// Env has the steps of this package.
type Env struct {
	devices      location.Connector
	guards       guards
	movingGuests movingGuests
	power        subject.Power
	runner       subject.Runner

	memory  *memory.Env
	subject *subject.Env
}

// New makes an Env.
func New(d *subject.Deps, memoryEnv *memory.Env, subjectEnv *subject.Env) *Env {
	return &Env{
		devices:      d.Devices,
		guards:       d.Guards,
		movingGuests: d.MovingGuests,
		power:        d.Power,
		runner:       d.Runner,
		memory:       memoryEnv,
		subject:      subjectEnv,
	}
}
