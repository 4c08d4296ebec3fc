// SPDX-License-Identifier: Apache-2.0

// Package memory has the steps of a move with all guests paused: it suspends and saves guests, and
// restores, resumes or discards them.
package memory

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Env has the steps of this package.
type Env struct {
	cfg          subject.Config
	definitions  definitions
	domains      domains
	guards       guards
	guests       guests
	host         func(context.Context) (subject.Host, error)
	images       images
	journal      op.Journal
	locations    locations
	log          *slog.Logger
	movingGuests movingGuests
	parts        moveParts
	registry     site
	runner       subject.Runner
	saves        hv.Memory
	unresumed    request.Unresumed

	subject *subject.Env
}

// New makes an Env.
func New(d *subject.Deps, subjectEnv *subject.Env) *Env {
	return &Env{
		cfg:          d.Cfg,
		definitions:  d.Definitions,
		domains:      d.Domains,
		guards:       d.Guards,
		guests:       d.Power,
		host:         d.Host,
		images:       d.Images,
		journal:      d.Journal,
		locations:    d.Locations,
		log:          d.Log,
		movingGuests: d.MovingGuests,
		parts:        d.Parts,
		registry:     d.Registry,
		runner:       d.Runner,
		saves:        d.Memory,
		subject:      subjectEnv,
	}
}
