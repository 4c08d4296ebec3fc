// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// The op kinds of instances.
const (
	kindStart   = "instance_start"
	kindStop    = "instance_stop"
	kindReboot  = "instance_reboot"
	kindPause   = "instance_pause"
	kindUnpause = "instance_unpause"

	kindShelve   = "instance_shelve"
	kindUnshelve = "instance_unshelve"

	kindSuspend = "instance_suspend"
	kindSave    = "instance_save"
	// kindRestore is in older journals: it let its guest run on at once. It is not
	// submitted any more.
	kindRestore       = "instance_restore"
	kindRestorePaused = "instance_restore_paused"
	kindDiscard       = "instance_discard_memory"
	kindResume        = "instance_resume"
)

var kinds = []string{
	kindStart, kindStop, kindReboot, kindPause, kindUnpause, kindShelve, kindUnshelve,
	kindSuspend, kindSave, kindRestore, kindRestorePaused, kindDiscard, kindResume,
}

// pauseKinds are the op kinds of a move with all guests paused; true for the kinds that
// bring an instance back.
var pauseKinds = map[string]bool{
	kindSuspend: false, kindSave: false, kindRestore: true, kindRestorePaused: true, kindDiscard: true, kindResume: true,
}

// The steps whose outputs or end are looked at.
const (
	stepNameAdmit  = "admit"
	stepNameReport = "report"
)

// Plans returns the plans of all op kinds of instances, for the runner.
func (m *Manager) Plans() []op.Plan {
	return slices.Concat(m.env.powerPlans(), []op.Plan{m.env.shelvePlan(), m.env.unshelvePlan()}, m.pausePlans())
}

// subject is the instance that an op is about: the beginning of every input here.
type subject struct {
	request.Asked
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	// Host and Epoch are the tokens of the op.
	Host     string `json:"host"`
	HostName string `json:"host_name"`
	Epoch    int64  `json:"epoch"`
	// Whole: nobody else changes the instance meanwhile. Otherwise the op owns only
	// whether the instance is on.
	Whole bool `json:"whole,omitempty"`
}

// Keys implements request.Input.
func (s *subject) Keys() []string {
	if s.Whole {
		return []string{request.PowerKey(s.InstanceID), request.InstanceKey(s.InstanceID)}
	}
	return []string{request.PowerKey(s.InstanceID)}
}

// Group implements request.Input.
func (s *subject) Group() string { return s.InstanceID }

// step makes an op.Step of functions that take the input. Undo and observe may be
// nil.
func step[I any](name string, do, undo op.DoFunc[I], observe op.ObserveFunc[I]) op.Step {
	return op.StepOf(op.InputOf[I], name, do, undo, observe)
}

// stepReport tells the registry what the op has made of the instance, so that
// whoever waited for the op finds the registry knowing it. Libvirt that has died
// meanwhile is waited for: without it this host knows nothing to tell.
func (e *stepEnv) stepReport() op.Step {
	return op.Step{Name: stepNameReport, Do: func(ctx context.Context, _ *op.Run) error {
		return e.reported(ctx)
	}}
}

// reported tells the registry of this host's instances. If libvirt does not answer, the
// op waits for it.
func (e *stepEnv) reported(ctx context.Context) error {
	if err := e.Report(ctx); errors.Is(err, hv.ErrUnavailable) {
		return request.HV(err)
	}
	return nil
}
