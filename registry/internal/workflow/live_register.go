// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// The size of a volume in a live move must be a multiple of liveAlignment bytes, so that two
// copying hosts never change the same block of this size.
const liveAlignment = 4096

// Register begins a move of a volume while its guests write, with the checks and locks of
// Pauses.Register.
func (s *LiveMoves) Register(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string) (api.Migration, error) {
	in.Method = api.MethodLive // whatever method the caller has set
	return s.pauses.register(ctx, call, ref, in, present, kind{
		method: api.MethodLive, what: "migration.live", manner: "while its guests write", request: "method " + api.MethodLive,
		admits: func(v api.Volume) error {
			switch src := v.Location; {
			case src.Format != api.FormatRaw, in.ToFormat != "" && in.ToFormat != api.FormatRaw:
				return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s while its guests write: only a raw image can be followed to another raw image; use pause_all", v.Name)
			case src.SizeBytes%liveAlignment != 0:
				return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s while its guests write: its size of %d bytes is no multiple of %d; use pause_all", v.Name, src.SizeBytes, liveAlignment)
			}
			return nil
		},
	})
}
