// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Request returns how the request stands that began with this op. An op of another kind
// stands for itself.
func (m *Manager) Request(ctx context.Context, opID string) (api.Op, error) {
	st, err := m.runner.Status(ctx, opID)
	if err != nil {
		return api.Op{}, api.Errorf(api.CodeNotFound, "no op %s", opID)
	}
	if steps.GoalOf(st.Op.Kind) == "" {
		return describe(&st, st.State, steps.APIError(st.Failure)), nil
	}
	h, err := m.loadHistory(ctx, st.Op.Group)
	if err != nil {
		return api.Op{}, err
	}
	// By the history alone: the op may have gone on since its status was read.
	state, failure, last := h.requestState(opID)
	if last == nil { // an op that the manager submitted by itself
		last = h.op(opID)
		state, failure = last.State, steps.APIError(last.Failure)
	}
	out := describe(&last.Status, state, failure)
	out.ID, out.Kind, out.CreatedAt, out.MigrationID = opID, st.Op.Kind, st.Op.CreatedAt, st.Op.Group
	return out, nil
}

// OpenOps returns the ops of this host, of every kind, that are not finished, the
// oldest first: those that run, those that wait, and those that need the operator.
func (m *Manager) OpenOps() []api.Op {
	open := []api.Op{}
	for _, st := range m.runner.Active() {
		if st.State.Final() {
			continue
		}
		o := describe(&st, st.State, steps.APIError(st.Failure))
		if steps.GoalOf(st.Op.Kind) != "" {
			o.MigrationID = st.Op.Group
		}
		open = append(open, o)
	}
	slices.SortFunc(open, func(a, b api.Op) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return open
}

// describe is the API's document of an op, with the state of the request that it serves, all
// from one status of it.
func describe(st *op.Status, state op.State, failure *api.Error) api.Op {
	out := api.Op{
		ID: st.Op.ID, Kind: st.Op.Kind, CreatedAt: st.Op.CreatedAt,
		State: string(state), Step: st.Step, Remark: remark(st), Error: failure, Location: madeLocation(st),
		WaitingFor: st.Waiting, Behind: st.Behind, Subject: subjectOf(st.Op.Input),
	}
	if st.Waiting != "" {
		since := st.WaitingSince.UTC()
		out.WaitingSince = &since
	}
	if state.Final() {
		finished := st.FinishedAt.UTC()
		out.FinishedAt = &finished
	}
	return out
}

// remark is what an op tells its caller besides its state: the "remark" in the output of a
// step.
func remark(st *op.Status) string {
	for _, data := range st.Outputs {
		var out struct {
			Remark string `json:"remark"`
		}
		if json.Unmarshal(data, &out) == nil && out.Remark != "" {
			return out.Remark
		}
	}
	return ""
}

// madeLocation is the dst that an op of CopySaved has made, nil for other ops and before the
// end of the op.
func madeLocation(st *op.Status) *api.Location {
	if st.Op.Kind != steps.KindCopySaved || st.State != op.StateDone {
		return nil
	}
	var in steps.Input
	if json.Unmarshal(st.Op.Input, &in) != nil {
		return nil
	}
	return &in.Spec.Dst
}

// subjectOf tells people what an op is about. Every kind has its own input, but volume and
// instance have the same names in all of them.
func subjectOf(input json.RawMessage) string {
	var in struct {
		VolumeName   string `json:"volume_name"`
		VolumeID     string `json:"volume_id"`
		InstanceName string `json:"instance_name"`
		InstanceID   string `json:"instance_id"`
		Volume       struct {
			Name string `json:"name"`
			ID   string `json:"id"`
		} `json:"volume"`
		Spec struct {
			VolumeName string `json:"volume_name"`
			VolumeID   string `json:"volume_id"`
		} `json:"spec"`
	}
	if json.Unmarshal(input, &in) != nil {
		return ""
	}
	volume := cmp.Or(in.VolumeName, in.Volume.Name, in.Spec.VolumeName, in.VolumeID, in.Volume.ID, in.Spec.VolumeID)
	instance := cmp.Or(in.InstanceName, in.InstanceID)
	switch {
	case volume != "" && instance != "":
		return "volume " + volume + " at instance " + instance
	case volume != "":
		return "volume " + volume
	case instance != "":
		return "instance " + instance
	}
	return ""
}
