// SPDX-License-Identifier: Apache-2.0

package request

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Render returns the API's document of an op. state and failure are the request's. They may differ
// from the op's own if several ops serve the request.
func Render(st *op.Status, state op.State, failure *api.Error) api.Op {
	out := api.Op{
		ID: st.Op.ID, Kind: st.Op.Kind, CreatedAt: st.Op.CreatedAt,
		State: string(state), Step: st.Step, Remark: Remark(st), Error: failure,
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

// Remark returns the remarks in the outputs of an op's steps.
func Remark(st *op.Status) string {
	var remarks []string
	for _, step := range slices.Sorted(maps.Keys(st.Outputs)) {
		var out struct {
			Remark string `json:"remark"`
		}
		if json.Unmarshal(st.Outputs[step], &out) == nil && out.Remark != "" {
			remarks = append(remarks, out.Remark)
		}
	}
	return strings.Join(remarks, "; ")
}

func subjectOf(input json.RawMessage) string {
	volume, instance := Names(input)
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

// Names returns the names, or ids, of an op's volume and instance, or "". All inputs use the same
// fields for them.
func Names(input json.RawMessage) (volume, instance string) {
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
		return "", ""
	}
	return cmp.Or(in.VolumeName, in.Volume.Name, in.Spec.VolumeName, in.VolumeID, in.Volume.ID, in.Spec.VolumeID), cmp.Or(in.InstanceName, in.InstanceID)
}
