// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// instanceBody is what the caller sent, to tell a repeated request from another one.
type instanceBody struct {
	Instance string `json:"instance"`
	In       any    `json:"in,omitempty"`
}

// submit stores the op of a request, waits until it is granted, and returns the instance.
// Asks are the steps, besides the first, that may still refuse it.
func (m *Manager) submit(ctx context.Context, req request.Request, asks ...string) (api.Instance, error) {
	o, err := m.admission.Submit(ctx, req)
	if err != nil {
		return api.Instance{}, err
	}
	var s subject
	if err := json.Unmarshal(o.Input, &s); err != nil {
		return api.Instance{}, fmt.Errorf("read op %s: %w", o.ID, err)
	}
	st, err := m.admission.Granted(ctx, o.ID, append(asks, stepNameAdmit)...)
	// A save that was admitted is no refusal, whatever became of it: it may have left the
	// guest at rest. Its op tells.
	if _, admitted := st.Outputs[stepNameAdmit]; err != nil && !admitted {
		return api.Instance{}, err
	}
	return m.env.currentInstance(ctx, &s), nil
}
