// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// sources looks for images that volumes have left by moves of this host and that were written
// since, or that a guest runs on.
func (d *doctor) sources(ctx context.Context) []api.Check {
	const name = "released"
	left, err := d.written(ctx)
	if err == nil && len(left) == 0 {
		return []api.Check{ok(name, "no source was written since its volume left it")}
	}
	out := []api.Check{}
	if err != nil {
		out = append(out, api.Check{
			Name: name, Status: "warn", Message: "nobody can tell of each source whether it was written since its volume left it: " + err.Error(),
			Advice: "ask again once that is mended, and libvirt and the registry answer",
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
