// SPDX-License-Identifier: Apache-2.0

// Package memory has the steps of a move with all guests paused: it suspends and saves guests, and
// restores, resumes or discards them.
package memory

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Env has the steps of this package.
type Env struct {
	cfg          subject.Config
	guards       guards
	host         func(context.Context) (subject.Host, error)
	hv           hypervisor
	images       images
	journal      op.Journal
	locations    locations
	log          *slog.Logger
	movingGuests movingGuests
	parts        moveParts
	registry     site
	runner       subject.Runner
	// unresumed has the guests, by instance, that moves could not resume.
	unresumed request.Unresumed

	subject *subject.Env
}

// New makes an Env.
func New(d *subject.Deps, subjectEnv *subject.Env) *Env {
	return &Env{
		cfg:          d.Cfg,
		guards:       d.Guards,
		host:         d.Host,
		hv:           d.HV,
		images:       d.Images,
		journal:      d.Journal,
		locations:    d.Locations,
		log:          d.Log,
		movingGuests: d.MovingGuests,
		parts:        d.Parts,
		registry:     d.Registry,
		runner:       d.Runner,
		subject:      subjectEnv,
	}
}
