// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

func (d *Doctor) sources(ctx context.Context) []api.Check {
	const name = "released"
	left, err := d.Written(ctx)
	out := d.unseen(ctx, name)
	if err == nil && len(left) == 0 && len(out) == 0 {
		return []api.Check{ok(name, "no released source was written since its move")}
	}
	if err != nil {
		out = append(out, api.Check{
			Name: name, Status: "warn", Message: "cannot check whether the released sources were written since their moves: " + err.Error(),
			Advice: "run doctor again when this is fixed, and libvirt and the registry answer",
		})
	}
	for i := range left {
		status := "warn"
		if left[i].RunBy != "" {
			status = "fail"
		}
		out = append(out, api.Check{Name: name, Status: status, Message: left[i].Difference(), Advice: left[i].WayOut()})
	}
	return out
}

func (d *Doctor) unseen(ctx context.Context, name string) []api.Check {
	all, err := d.Released(ctx)
	if err != nil {
		return nil // sources reports the same error
	}
	out := []api.Check{}
	for i := range all {
		r := &all[i]
		if r.WrittenUnknown == "" || r.RunBy != "" {
			continue
		}
		out = append(out, api.Check{
			Name: name, Status: "warn",
			Message: fmt.Sprintf("it is not known whether %s, which volume %s has left by migration %s, was written since: %s", r.Location.Path, r.VolumeName, r.MigrationID, r.WrittenUnknown),
			Advice:  "if a guest may have been started on it, compare it with the volume before you delete it or use it for another volume",
		})
	}
	return out
}
