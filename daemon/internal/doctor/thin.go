// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/thin"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// thinFull is the used fraction above which a thin pool should be extended: together the volumes
// of a thin pool may be larger than the pool.
const thinFull = 0.8

func (d *Doctor) thinPools(ctx context.Context) []api.Check {
	pools, err := d.Storage.Privileged.ThinPools(ctx)
	out := thinChecks(pools)
	if err != nil {
		out = append(out, api.Check{Name: "thin pools", Status: "warn", Message: err.Error(), Advice: "lvs -a -o +data_percent,metadata_percent"})
	}
	return out
}

func thinChecks(pools []thin.Pool) []api.Check {
	out := make([]api.Check, 0, len(pools))
	for _, p := range pools {
		full := ok("thin pool "+p.Name, fmt.Sprintf("data %.1f%%, metadata %.1f%% used", 100*p.Data, 100*p.Metadata))
		switch {
		case p.Trouble != "":
			full.Status, full.Message = "fail", p.Trouble+": "+full.Message
			full.Advice = shell.Line("lvs", "-a", "--", p.Name) + ", then lvextend; for a damaged pool: " + shell.Line("lvconvert", "--repair", "--", p.Name)
		case p.Metadata >= thinFull:
			full.Status, full.Advice = "warn", shell.Line("lvextend", "--poolmetadatasize", "+SIZE", "--", p.Name)
		case p.Data >= thinFull:
			full.Status, full.Advice = "warn", shell.Line("lvextend", "--size", "+SIZE", "--", p.Name)+", or move volumes out of it with --delete-source"
		}
		out = append(out, full)
	}
	return out
}
