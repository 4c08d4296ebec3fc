// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

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

// subjectOf is what an op is about by its input, for people. Every kind has its own
// input, in which volume and instance are called alike.
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
