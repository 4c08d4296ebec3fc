// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// outside reports attached volumes at paths that the settings forbid: after a detach they could
// not be attached again.
func (d *Doctor) outside(ctx context.Context, attached []api.Volume) []api.Check {
	out := []api.Check{}
	for _, w := range d.Cfg.Warnings() {
		out = append(out, api.Check{Name: "allowed_paths", Status: "warn", Message: w, Advice: "list directories that only root can write to"})
	}
	for _, vol := range attached {
		if vol.Location.Pool != "" {
			continue
		}
		if err := d.Rules.CheckPlace(ctx, vol.Location.Path); api.CodeOf(err) == api.CodePermissionDenied {
			advice := "do one of these two before a detach, or move the volume to a pool"
			if location.OfSystem(filepath.Dir(vol.Location.Path)) {
				advice = "move the volume to a pool: " + shell.Line("volferryctl", "volume", "migrate", vol.Name, "--to-pool", "POOL")
			}
			out = append(out, api.Check{
				Name: "volume " + vol.Name, Status: "warn", Message: "the attached volume works, but after a detach it cannot be attached again: " + err.Error(),
				Advice: advice,
			})
		}
	}
	return out
}
