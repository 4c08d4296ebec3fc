// SPDX-License-Identifier: Apache-2.0

// Package repair has the steps that correct definitions, and the check before an instance is
// forgotten.
package repair

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
)

// Env has the steps of this package.
type Env struct {
	definitions  definitions
	locations    locations
	log          *slog.Logger
	movingGuests movingGuests
	recorded     func(ctx context.Context, instanceID string) error
	registry     site

	subject *subject.Env
}

// New makes an Env.
func New(d *subject.Deps, subjectEnv *subject.Env) *Env {
	return &Env{
		definitions:  d.Definitions,
		locations:    d.Locations,
		log:          d.Log,
		movingGuests: d.MovingGuests,
		recorded:     d.Recorded,
		registry:     d.Registry,
		subject:      subjectEnv,
	}
}
