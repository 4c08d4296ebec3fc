// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// nextCommands returns the commands that end an op which waits for the operator. These are the
// commands in the op's error, or else the command that repeats the call. It returns "" if it knows
// none, and for other ops.
func nextCommands(st *op.Status, o *api.Op) string {
	if op.State(o.State) != op.StateNeedsOperator {
		return ""
	}
	if o.Error != nil {
		if cure, known := o.Error.Details[api.DetailCure].(string); known {
			return cure
		}
	}
	if migrate.Owns(st.Op.Kind) {
		return shell.Line("volferryctl", "migration", "show", st.Op.Group)
	}
	words := again(st)
	if words == nil {
		return ""
	}
	return shell.Line(append([]string{"volferryctl"}, words...)...)
}

var byInstance = []string{"start", "stop", "reboot", "pause", "unpause", "repair", "shelve", "unshelve"}

// again returns the command that continues an op. It returns nil if none is known, or if the
// registry continues the op.
func again(st *op.Status) []string {
	volume, instance := request.Names(st.Op.Input)
	what, verb, _ := strings.Cut(st.Op.Kind, "_")
	switch {
	case st.Op.Kind == place.KindDeleteSource:
		var in place.ReleasedInput
		if json.Unmarshal(st.Op.Input, &in) != nil {
			return nil
		}
		return []string{"migration", "delete-source", in.Spec.MigrationID, "--yes"}
	case what == "instance" && slices.Contains(byInstance, verb):
		return []string{"instance", verb, instance}
	case what == "attachment" && strings.HasPrefix(verb, "attach"):
		return []string{"volume", "attach", volume, instance}
	case what == "attachment":
		return []string{"volume", "detach", volume, instance}
	case st.Op.Kind == "volume_resize":
		var in struct {
			SizeBytes int64 `json:"size_bytes"`
		}
		if json.Unmarshal(st.Op.Input, &in) != nil {
			return nil
		}
		return []string{"volume", "resize", volume, "--size", strconv.FormatInt(in.SizeBytes, 10)}
	case what == "volume" && (verb == "create" || verb == "delete"):
		return []string{"volume", "delete", volume, "--force"}
	}
	return nil
}
