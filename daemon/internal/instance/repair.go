// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/repair"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginRepair corrects the definition of an instance that is off: each disk names its volume's
// image or, for a moving volume, the overlay. It refuses if the source of a move may have been
// written since the move's start. While an op of a migration waits for the operator, it corrects
// only that migration's disk, also for a running guest.
func (m *Manager) BeginRepair(ctx context.Context, opID, instanceRef string, how api.InstanceRepair) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: subject.KindRepair, Body: instanceBody{instanceRef, how},
		Decide: func(ctx context.Context) (request.Input, error) {
			inst, err := m.env.Subject.FindInstance(ctx, instanceRef)
			if err != nil {
				return nil, err
			}
			in := &repair.Input{SourceUnwritten: how.SourceUnwritten}
			if in.Subject, err = m.env.Subject.SubjectOf(ctx, inst); err != nil {
				return nil, err
			}
			standing, err := m.ports.MovingGuests.Standing(ctx, inst.ID)
			if err != nil {
				return nil, err
			}
			in.Whole = !standing
			return in, m.env.Repair.CheckRepair(ctx, in)
		},
	})
}
