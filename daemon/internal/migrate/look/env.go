// SPDX-License-Identifier: Apache-2.0

// Package look reads where the data of a volume is: libvirt's view of the disk, the images that
// the guest's process has open, and the other users of an image. It changes nothing. A step that
// depends on the answer asks again, and trusts no earlier step.
package look

import (
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// Env looks at guests, images and other users of images.
type Env struct {
	chains    chains
	claims    *location.Claims
	domains   domains
	history   history
	images    images
	jobStart  func(hv.Version) hv.JobStart
	jobs      jobs
	log       *slog.Logger
	now       func() time.Time
	processes hv.Processes

	move *move.Env
}

// New makes an Env.
func New(d *move.Deps, moveEnv *move.Env) *Env {
	return &Env{
		chains:    d.HV,
		claims:    d.Claims,
		domains:   d.HV,
		history:   d.History,
		images:    d.Images,
		jobStart:  d.JobStart,
		jobs:      d.HV,
		log:       d.Log,
		now:       d.Now,
		processes: d.HV,
		move:      moveEnv,
	}
}
