// SPDX-License-Identifier: Apache-2.0

// Package shelf has the steps that shelve and unshelve instances, and the checks before them.
package shelf

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/instance/power"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
)

// Env has the steps of this package.
type Env struct {
	definitions definitions
	guards      guards
	host        func(context.Context) (subject.Host, error)
	locations   locations
	log         *slog.Logger
	migrations  subject.Migrations
	recorded    func(ctx context.Context, instanceID string) error
	registry    site
	report      func(ctx context.Context) error
	runner      subject.Runner

	power   *power.Env
	subject *subject.Env
}

// New makes an Env.
func New(d *subject.Deps, powerEnv *power.Env, subjectEnv *subject.Env) *Env {
	return &Env{
		definitions: d.Definitions,
		guards:      d.Guards,
		host:        d.Host,
		locations:   d.Locations,
		log:         d.Log,
		migrations:  d.Migrations,
		recorded:    d.Recorded,
		registry:    d.Registry,
		report:      d.Report,
		runner:      d.Runner,
		power:       powerEnv,
		subject:     subjectEnv,
	}
}
