// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// request is what a caller asks for under an op id.
type request struct {
	opID string
	// kind is that of the op, or kindFor of it for a root volume: which it is, is
	// decided.
	kind string
	// asked is what the caller sent.
	asked any
	// decide makes all checks and decides what is to be done. It is called for
	// a new request only and changes nothing.
	decide func(ctx context.Context) (input, error)
}

// begin stores and starts the op of a request, or finds the one of a repeated
// request. It returns once the op has been granted what it needs, or is refused,
// or waits for something that is away.
func (g *Manager) begin(ctx context.Context, req request) (input, error) {
	in, err := g.submit(ctx, req)
	if err != nil {
		return in, err
	}
	st, err := g.granted(ctx, req.opID)
	if err != nil {
		return in, err
	}
	if st.State == op.StateUndone {
		return in, failure(st)
	}
	return in, nil
}

// submit stores and starts the op of a request that was not made before.
func (g *Manager) submit(ctx context.Context, req request) (input, error) {
	asked, err := json.Marshal(req.asked)
	if err != nil {
		return input{}, fmt.Errorf("encode request: %w", err)
	}
	g.admit.Lock()
	defer g.admit.Unlock()
	if in, known, err := g.repeated(ctx, req, asked); known || err != nil {
		return in, err
	}
	in, err := g.decided(ctx, req)
	if err != nil {
		return in, err
	}
	in.Asked = asked
	data, err := json.Marshal(in)
	if err != nil {
		return in, fmt.Errorf("encode input of op %s: %w", req.opID, err)
	}
	g.goOn(ctx, in.keys())
	err = g.runner.Submit(ctx, op.Op{
		ID: req.opID, Kind: kindFor(req.kind, in.Root), Group: in.AttachmentID, Keys: in.keys(), Input: data, CreatedAt: time.Now().UTC(),
	})
	if err != nil {
		return in, api.Errorf(api.CodeJournalUnavailable, "cannot begin: %v; nothing was changed", err)
	}
	g.log.Info("begun", "kind", req.kind, "op", req.opID, "volume", in.VolumeName, "instance", in.InstanceName)
	return in, nil
}

// decided bounds the checks: whoever hangs must not hold up other requests.
func (g *Manager) decided(ctx context.Context, req request) (input, error) {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	in, err := req.decide(ctx)
	return in, refused(err)
}

// repeated finds the op of a request that was made before.
func (g *Manager) repeated(ctx context.Context, req request, asked []byte) (in input, known bool, err error) {
	o, err := g.journal.Op(ctx, req.opID)
	if errors.Is(err, op.ErrNotFound) {
		return in, false, nil
	}
	if err != nil {
		return in, false, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	same := o.Kind == req.kind || o.Kind == kindFor(req.kind, true)
	if same {
		if err := json.Unmarshal(o.Input, &in); err != nil {
			return in, true, fmt.Errorf("compare with op %s: %w", req.opID, err)
		}
	}
	if !same || string(in.Asked) != string(asked) {
		return in, true, api.Errorf(api.CodeIdempotencyMismatch, "op %s was used for another request", req.opID)
	}
	return in, true, nil
}

// goOn is the operator's word to those ops of attachments that wait for him and
// are in the way of a new one: he has looked, and asks again.
func (g *Manager) goOn(ctx context.Context, keys []string) {
	for _, st := range g.runner.Active() {
		if st.State != op.StateNeedsOperator || !ours(st.Op.Kind) || !share(st.Op.Keys, keys) {
			continue
		}
		if err := g.runner.Continue(ctx, st.Op.ID); err != nil {
			g.log.Warn("an op that waits for the operator cannot go on", "op", st.Op.ID, "err", err)
		}
	}
}

func ours(kind string) bool { return slices.Contains(kinds, kind) }

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(k string) bool { return slices.Contains(b, k) })
}

// grantPoll is how often an op that was just begun is looked at.
const grantPoll = 5 * time.Millisecond

// granted waits until the op is past its first step, so that a refusal is the
// answer to the request and not a surprise later. An op that waits is not waited
// for long; one that has not even got its turn behind something that lasts is
// taken back.
func (g *Manager) granted(ctx context.Context, opID string) (op.Status, error) {
	enough := time.NewTimer(g.patience)
	defer enough.Stop()
	poll := time.NewTicker(grantPoll)
	defer poll.Stop()
	for {
		st, err := g.runner.Status(ctx, opID)
		if err != nil {
			return st, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
		}
		// Before its first step, and when that is undone, an op has no outputs.
		if st.State != op.StateRunning || (st.Step != "" && !slices.Contains(firstSteps[st.Op.Kind], st.Step)) {
			return g.ended(ctx, st)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return st, fmt.Errorf("wait for op %s: %w", opID, context.Cause(ctx))
		case <-enough.C:
			if st.Waiting == waitTurn && !g.behindOurs(st) {
				return g.takeBackTurn(ctx, st)
			}
			return st, nil
		}
	}
}

// firstSteps are the steps, by kind, that ask the registry, or look, whether the op
// may be. Those of a root volume look until their commit point, and are quick.
var firstSteps = map[string][]string{
	kindAttach:     {stepNameReserve},
	kindDetach:     {stepNameBegin},
	kindDelete:     {stepNameAbsent},
	kindAttachRoot: {stepNameReserve, stepNameClaim, stepNameGuard, stepNameConnect, stepNameAttachConfig, stepNameVerify},
	kindDetachRoot: {stepNameBegin, stepNameGuard, stepNameRemember, stepNameDetachConfig, stepNameStayOff},
	kindDeleteRoot: {stepNameAbsent},
}

// ended waits for the end of an op that is being undone; what is not done is no
// success.
func (g *Manager) ended(ctx context.Context, st op.Status) (op.Status, error) {
	if st.State != op.StateUndoing {
		return st, nil
	}
	return g.waitAWhile(ctx, st.Op.ID)
}

// behindOurs says whether everything that an op waits behind is an op of
// attachments: these do not last.
func (g *Manager) behindOurs(mine op.Status) bool {
	for _, st := range g.runner.Active() {
		if st.Op.ID != mine.Op.ID && share(st.Op.Keys, mine.Op.Keys) && !ours(st.Op.Kind) {
			return false
		}
	}
	return true
}

// takeBackTurn ends an op that has touched nothing because something else works
// on its instance.
func (g *Manager) takeBackTurn(ctx context.Context, st op.Status) (op.Status, error) {
	busy := api.Errorf(api.CodeInstanceBusy, "another operation works on the instance or the volume; `volferryctl migration list` shows migrations; try again when it is over")
	if err := g.runner.Interrupt(st.Op.ID, busy); err != nil {
		return st, nil //nolint:nilerr // it has got its turn since
	}
	return g.waitAWhile(ctx, st.Op.ID)
}

// perform runs the op of a request to its end. An op that was undone is an error.
func (g *Manager) perform(ctx context.Context, req request) (input, op.Status, error) {
	in, err := g.begin(ctx, req)
	if err != nil {
		return in, op.Status{}, err
	}
	st, err := g.wait(ctx, in, req)
	return in, st, err
}

// wait returns once the op is over. Work may take its time; what waits for
// something that is away, or for an operator, is answered, and goes on by itself.
func (g *Manager) wait(ctx context.Context, in input, req request) (op.Status, error) {
	for {
		st, err := g.waitAWhile(ctx, req.opID)
		switch {
		case err != nil:
			return st, err
		case st.State == op.StateDone:
			return st, nil
		case st.State == op.StateUndone:
			return st, failure(st)
		case st.State == op.StateNeedsOperator:
			return st, api.Errorf(api.CodeNeedsOperator, "%s, but an operator has to look at it: %s", in.doing(req.kind), st.Failure.Message).
				With("op_id", req.opID).With("cause", st.Failure.Code)
		}
		waiting := st.Waiting
		if st.State == op.StateUndoing && st.Step == stepNameAttachLive {
			waiting = waitGuest // or it asks once more just now
		}
		if err := in.stuck(req, waiting); err != nil {
			return st, err
		}
	}
}

// waitAWhile waits for the end of an op, but not longer than a request may wait
// for what is away. It returns where the op stands.
func (g *Manager) waitAWhile(ctx context.Context, opID string) (op.Status, error) {
	bounded, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	now, err := g.runner.Wait(bounded, opID)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return now, nil
	}
	return now, err
}

// doing says in words what an op does, for a caller who cannot wait.
func (in *input) doing(kind string) string {
	what := "attached to"
	if kind != kindAttach {
		what = "detached from"
	}
	return fmt.Sprintf("volume %s is being %s instance %s", in.VolumeName, what, in.InstanceName)
}

// stuck is the answer for an op that waits, nil for one that works.
func (in *input) stuck(req request, waiting string) error {
	code, what := api.CodeInstanceBusy, "another operation on the instance or the volume has to end first"
	switch waiting {
	case "":
		return nil
	case waitRegistry:
		code, what = api.CodeRegistryUnavailable, "the registry does not answer"
	case waitHypervisor:
		code, what = api.CodeHypervisorUnavailable, "libvirt does not answer"
	case waitGuest:
		what = "it cannot be and is undone, and the guest has to let go of the disk first"
	}
	return api.Errorf(code, "%s, but %s; it goes on by itself (op %s)", in.doing(req.kind), what, req.opID).With("op_id", req.opID)
}

// failure is why an op was undone.
func failure(st op.Status) *api.Error {
	f := st.Failure
	return &api.Error{Code: api.Code(f.Code), Message: f.Message, Details: f.Details}
}
