// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// StepNameDiscard is the commit point of an op of KindDiscard.
const StepNameDiscard = "discard_memory"

// StepDiscard discards an instance's memory: its save image or its paused process. The instance is
// then off, as after a power cut; its guard stays until BeginResume. A running instance does not
// change.
func (e *Env) StepDiscard() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *PauseInput) error {
		if err := e.guards.Set(in.InstanceID, in.Owner(), in.reason()); err != nil {
			return err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		if err != nil {
			return err
		}
		if dom != nil && dom.State == hv.StatePaused {
			if err := e.guests.PowerOff(ctx, in.InstanceID); err != nil {
				return request.HV(err)
			}
			e.log.Warn("the memory of an instance was given up", "instance", in.InstanceName, "migration", in.MigrationID)
		}
		return removeSaveImage(in)
	}
	observe := func(ctx context.Context, _ *op.Run, in *PauseInput) (op.Observation, error) {
		there, err := SaveImageExists(in)
		if err != nil || there {
			return op.NotDone, err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		return op.DoneIf(dom == nil || dom.State != hv.StatePaused), err
	}
	return subject.Step(StepNameDiscard, do, nil, observe)
}
