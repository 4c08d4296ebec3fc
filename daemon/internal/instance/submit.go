// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

type instanceBody struct {
	Instance string `json:"instance"`
	In       any    `json:"in,omitempty"`
}

// submit stores a request's op, waits until the op has passed the steps that may refuse it (the
// first step and asks), and returns the instance.
func (m *Manager) submit(ctx context.Context, req request.Request, asks ...string) (api.Instance, error) {
	o, err := m.admission.Submit(ctx, req)
	if err != nil {
		return api.Instance{}, err
	}
	var s subject.Subject
	if err := json.Unmarshal(o.Input, &s); err != nil {
		return api.Instance{}, fmt.Errorf("read op %s: %w", o.ID, err)
	}
	st, err := m.admission.Granted(ctx, o.ID, append(asks, subject.StepNameAdmit)...)
	// A failed save is not refused here if it was admitted: it may have left the guest paused, and
	// the op has its result.
	if _, admitted := st.Outputs[subject.StepNameAdmit]; err != nil && !admitted {
		return api.Instance{}, err
	}
	return m.currentInstance(ctx, &s), nil
}

func (m *Manager) currentInstance(ctx context.Context, s *subject.Subject) api.Instance {
	inst, err := m.env.Subject.FindInstance(ctx, s.InstanceID)
	if err != nil {
		inst = api.Instance{ID: s.InstanceID, Name: s.InstanceName, Host: s.HostName}
	}
	if dom, err := m.ports.Domains.Domain(ctx, s.InstanceID); err == nil && !inst.State.OnShelf() {
		inst.State = StateOf(dom)
	}
	return inst
}
