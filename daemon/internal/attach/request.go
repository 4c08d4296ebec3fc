// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// begin starts a request's op, or finds the op of a repeated request. It returns once firstSteps
// have accepted or refused the op, or wait for libvirt or the registry.
func (m *Manager) begin(ctx context.Context, req request.Request) (in input, err error) {
	req.Variants = []string{kindFor(req.Kind, true)}
	o, err := m.admission.Submit(ctx, req)
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(o.Input, &in); err != nil {
		return in, fmt.Errorf("read op %s: %w", o.ID, err)
	}
	_, err = m.admission.Granted(ctx, o.ID, firstSteps[o.Kind]...)
	return in, err
}

func (m *Manager) perform(ctx context.Context, req request.Request) (input, op.Status, error) {
	in, err := m.begin(ctx, req)
	if err != nil {
		return in, op.Status{}, err
	}
	st, err := m.admission.End(ctx, req.OpID, in.doing(req.Kind))
	return in, st, err
}

func decided(in input, err error) (request.Input, error) { return &in, err }

// firstSteps has, by kind, the steps that check whether the op may begin. For a root volume these
// are all steps before the commit point, because they are quick.
var firstSteps = map[string][]string{
	kindAttach:     {stepNameReserve},
	kindDetach:     {stepNameBegin},
	kindDelete:     {stepNameAbsent},
	kindAttachRoot: {stepNameReserve, stepNameClaim, stepNameGuard, stepNameConnect, stepNameAttachConfig, stepNameVerify},
	kindDetachRoot: {stepNameBegin, stepNameGuard, stepNameRemember, stepNameDetachConfig, stepNameStayOff},
	kindDeleteRoot: {stepNameAbsent},
}

func (in *input) doing(kind string) string {
	what := "attached to"
	if kind != kindAttach {
		what = "detached from"
	}
	return fmt.Sprintf("volume %s is being %s instance %s", in.VolumeName, what, in.InstanceName)
}
