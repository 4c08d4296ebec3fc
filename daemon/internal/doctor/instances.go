// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Lost reports disks of volumes that this host lost when it was fenced, if domains still name
// them. The start of such a domain is refused.
func (d *Doctor) Lost() []api.Check {
	out := []api.Check{}
	for _, l := range d.Uplink.Lost() {
		out = append(out, api.Check{
			Name: "instance " + l.InstanceName, Status: "warn",
			Message: fmt.Sprintf("its start is refused: disk %s is volume %s at %s, which this host lost when it was fenced", l.Target, l.VolumeName, l.Path),
			Advice: shell.Line("virsh", "detach-disk", "--config", "--", l.InstanceName, l.Target) +
				"; then the instance can be started, and the volume can be attached here again when it is free",
		})
	}
	return out
}

// moves reports this host's migrations that have stopped, the guests that they leave paused or
// slow, and changes of a moving disk by another program.
func (d *Doctor) moves(ctx context.Context) []api.Check {
	open, err := d.Open(ctx)
	if err != nil {
		return []api.Check{{Name: "moves", Status: "fail", Message: err.Error(), Advice: "check the disk of the state directory"}}
	}
	out := []api.Check{api.CheckMoves(open)}
	if paused := api.CheckOverlays(open, d.Unresumed()...); paused.Status != "ok" { // the space for overlays has its own check
		out = append(out, paused)
	}
	if chains := api.CheckChains(api.ChainProblems(open)); chains.Status != "ok" {
		out = append(out, chains)
	}
	return out
}

func (d *Doctor) notes() []api.Check {
	out := []api.Check{}
	for _, n := range d.Uplink.Notes() {
		out = append(out, checkNote(&n))
	}
	return out
}

// checkNote returns the check of an instance with a note. Most notes have their advice in the
// text.
func checkNote(n *uplink.Note) api.Check {
	check := api.Check{Name: "instance " + n.InstanceName, Status: "warn", Message: n.Text}
	if n.RunsElsewhere {
		check.Status = "fail"
	}
	if n.Misnamed {
		check.Advice = fmt.Sprintf("`volferryctl instance start` is refused meanwhile: `volferryctl volume which` shows what each witness has; if the registry is right, `%s` puts the volume's path back into the definition",
			shell.Line("volferryctl", "instance", "repair", n.InstanceName))
	}
	return check
}
