// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// wish is what a caller asks for under an op id.
type wish struct {
	opID string
	kind string
	// asked is what the caller sent.
	asked any
	// doing says in words what the op does, for a caller who cannot wait.
	doing string
	// decide makes all checks and decides what is to be done. It is called for
	// a new request only and changes nothing.
	decide func(ctx context.Context) (input, error)
}

// perform runs the op of a request, or finds the one of a repeated request,
// and returns how it ended. An op that was undone is an error.
func (g *Manager) perform(ctx context.Context, w wish) (op.Status, error) {
	_, err := g.desk.Submit(ctx, request.Request{
		OpID: w.opID, Kind: w.kind, Asked: w.asked,
		Decide: func(ctx context.Context) (request.Input, error) {
			in, err := w.decide(ctx)
			return &in, err
		},
	})
	if err != nil {
		return op.Status{}, err
	}
	return g.desk.End(ctx, w.opID, w.doing)
}

// volumeOf is the volume that a step of an op left as its output.
func volumeOf(st op.Status, step string) (api.Volume, error) {
	var vol api.Volume
	if err := json.Unmarshal(st.Outputs[step], &vol); err != nil {
		return vol, fmt.Errorf("read the result of op %s: %w", st.Op.ID, err)
	}
	return vol, nil
}
