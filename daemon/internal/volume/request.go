// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// request is what a caller asks for under an op id.
type request struct {
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
func (g *Manager) perform(ctx context.Context, req request) (op.Status, error) {
	if err := g.submit(ctx, req); err != nil {
		return op.Status{}, err
	}
	st, err := g.wait(ctx, req)
	if err != nil {
		return st, err
	}
	if st.State == op.StateDone {
		return st, nil
	}
	f := st.Failure
	if st.State == op.StateNeedsOperator {
		return st, api.Errorf(api.CodeNeedsOperator, "%s, but an operator has to look at it: %s", req.doing, f.Message).
			With("op_id", req.opID).With("cause", f.Code)
	}
	return st, &api.Error{Code: api.Code(f.Code), Message: f.Message, Details: f.Details}
}

// submit stores and starts the op of a request that was not made before.
func (g *Manager) submit(ctx context.Context, req request) error {
	asked, err := json.Marshal(req.asked)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	g.admit.Lock()
	defer g.admit.Unlock()
	if known, err := g.repeated(ctx, req, asked); known || err != nil {
		return err
	}
	in, err := g.decide(ctx, req)
	if err != nil {
		return err
	}
	in.Asked = asked
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode input of op %s: %w", req.opID, err)
	}
	err = g.runner.Submit(ctx, op.Op{
		ID: req.opID, Kind: req.kind, Keys: []string{volumeKey(in.Volume.ID)}, Input: data, CreatedAt: time.Now().UTC(),
	})
	if err != nil {
		return api.Errorf(api.CodeJournalUnavailable, "cannot begin: %v; nothing was changed", err)
	}
	g.log.Info(req.doing, "op", req.opID, "volume", in.Volume.Name)
	return nil
}

// decide bounds the checks: whoever hangs must not hold up other requests.
func (g *Manager) decide(ctx context.Context, req request) (input, error) {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	in, err := req.decide(ctx)
	return in, refused(err)
}

// repeated says whether the request was made before.
func (g *Manager) repeated(ctx context.Context, req request, asked []byte) (bool, error) {
	o, err := g.journal.Op(ctx, req.opID)
	if errors.Is(err, op.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	var in input
	if o.Kind == req.kind {
		if err := json.Unmarshal(o.Input, &in); err != nil {
			return true, fmt.Errorf("compare with op %s: %w", req.opID, err)
		}
	}
	if o.Kind != req.kind || string(in.Asked) != string(asked) {
		return true, api.Errorf(api.CodeIdempotencyMismatch, "op %s was used for another request", req.opID)
	}
	return true, nil
}

// isKnown says whether there is an op with this id.
func (g *Manager) isKnown(ctx context.Context, opID string) (bool, error) {
	_, err := g.journal.Op(ctx, opID)
	if errors.Is(err, op.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	return true, nil
}

// wait returns once the op is over or parked. Work may take its time; what
// waits for something that is away is answered after a while, and goes on by
// itself.
func (g *Manager) wait(ctx context.Context, req request) (op.Status, error) {
	for {
		st, err := g.waitAWhile(ctx, req.opID)
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return st, err
		}
		if err := stuck(req, st.Waiting); err != nil {
			return st, err
		}
	}
}

func (g *Manager) waitAWhile(ctx context.Context, opID string) (op.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	return g.runner.Wait(ctx, opID)
}

// stuck is the answer for an op that waits, nil for one that works.
func stuck(req request, waiting string) error {
	away := func(code api.Code, what string) error {
		return api.Errorf(code, "%s, but %s; it goes on by itself (op %s)", req.doing, what, req.opID).With("op_id", req.opID)
	}
	switch waiting {
	case "":
		return nil
	case waitRegistry:
		return away(api.CodeRegistryUnavailable, "the registry does not answer")
	case waitHypervisor:
		return away(api.CodeHypervisorUnavailable, "libvirt does not answer")
	}
	return away(api.CodeConflict, "another operation on the volume has to end first")
}

// volumeOf is the volume that a step of an op left as its output.
func volumeOf(st op.Status, step string) (api.Volume, error) {
	var vol api.Volume
	if err := json.Unmarshal(st.Outputs[step], &vol); err != nil {
		return vol, fmt.Errorf("read the result of op %s: %w", st.Op.ID, err)
	}
	return vol, nil
}
