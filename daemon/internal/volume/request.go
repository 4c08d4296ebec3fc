// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// perform runs a request's op, or finds the op of a repeated request, and returns its final
// status. It returns an error if the op was undone. doing describes the op for a caller who cannot
// wait longer.
func (m *Manager) perform(ctx context.Context, req request.Request, doing string) (op.Status, error) {
	if _, err := m.admission.Submit(ctx, req); err != nil {
		return op.Status{}, err
	}
	return m.admission.End(ctx, req.OpID, doing)
}

func volumeOf(st op.Status, step string) (api.Volume, error) {
	var vol api.Volume
	if err := json.Unmarshal(st.Outputs[step], &vol); err != nil {
		return vol, fmt.Errorf("read the result of op %s: %w", st.Op.ID, err)
	}
	return vol, nil
}
