// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// BeginRepair makes the definition of an instance that is off name the images where its volumes
// are, or the overlay of a volume that moves. A definition that names them already is left as it
// is. Where a move's source was written since, and where nobody can tell, it is refused. While an
// operation of a migration of the instance waits for the operator, it names the disk of that
// migration and no other, also where the guest runs. See BeginStart.
func (m *Manager) BeginRepair(ctx context.Context, opID, instanceRef string, how api.InstanceRepair) (api.Instance, error) {
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: steps.KindRepair, Body: repairBody(instanceRef, how),
		Decide: func(ctx context.Context) (request.Input, error) {
			inst, err := m.env.FindInstance(ctx, instanceRef)
			if err != nil {
				return nil, err
			}
			in := &steps.RepairInput{SourceUnwritten: how.SourceUnwritten}
			if in.Subject, err = m.env.SubjectOf(ctx, inst); err != nil {
				return nil, err
			}
			standing, err := m.env.Migrations.Standing(ctx, inst.ID)
			if err != nil {
				return nil, err
			}
			in.Whole = !standing
			return in, m.env.CheckRepair(ctx, in)
		},
	})
}

// repairBody is the body of a repair. One without flags is what it was before there were any: the
// journal knows a request that is sent again by it.
func repairBody(instance string, how api.InstanceRepair) instanceBody {
	if how == (api.InstanceRepair{}) {
		return instanceBody{Instance: instance}
	}
	return instanceBody{instance, how}
}
