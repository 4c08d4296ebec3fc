// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// DefaultPatience is long enough for a registry or a libvirtd that restarts.
const DefaultPatience = 15 * time.Second

// Input is the input of an op: what was decided before anything was touched. It
// embeds Asked and is encoded as JSON.
type Input interface {
	// Keys are what the op excludes others from (op.Op.Keys), Group its group.
	Keys() []string
	Group() string
	SetAsked(asked json.RawMessage)
}

// Varied is an Input that may choose the Variant of its request.
type Varied interface {
	Input
	Varied() bool
}

// Asked is what the caller sent, so that a repeated request is told from another
// one under the same id.
type Asked struct {
	Asked json.RawMessage `json:"asked,omitempty"`
}

// SetAsked implements Input.
func (a *Asked) SetAsked(asked json.RawMessage) { a.Asked = asked }

// Request is what a caller asks for under an op id.
type Request struct {
	OpID string
	Kind string
	// Variant is the kind that the op gets instead if its input chooses it (Varied);
	// "" if there is none.
	Variant string
	// Asked is what the caller sent.
	Asked any
	// Decide makes all checks and decides what is to be done. It is called for a
	// new request only and changes nothing.
	Decide func(ctx context.Context) (Input, error)
}

// kindFor is the kind of the op with this input.
func (r *Request) kindFor(in Input) string {
	if v, ok := in.(Varied); ok && v.Varied() {
		return r.Variant
	}
	return r.Kind
}

// Desk takes the requests of one manager. Its fields are set before its first
// call. Safe for concurrent use.
type Desk struct {
	Runner  *op.Runner
	Journal op.Journal
	Log     *slog.Logger
	// Kinds are the op kinds of the manager: they do not last, so that a request
	// waits behind them, and one that waits for the operator goes on when he asks
	// for more.
	Kinds []string
	// Patience is how long a request waits for something that is away; 0 is
	// DefaultPatience.
	Patience time.Duration
	// Busy is the code for a request that another op keeps from its end; "" is
	// instance_busy.
	Busy api.Code
	// Waits says in words what an op of this manager waits for, if the desk would not
	// say it so; "" leaves it to the desk, and so does no function.
	Waits func(op.Status) string

	// admit makes the look at what was asked before and the submission of an op
	// one.
	admit sync.Mutex
}

func (d *Desk) patience() time.Duration {
	if d.Patience > 0 {
		return d.Patience
	}
	return DefaultPatience
}

// Submit stores and starts the op of a request, or finds the one of a repeated
// request, and returns it.
func (d *Desk) Submit(ctx context.Context, req Request) (op.Op, error) {
	asked, err := json.Marshal(req.Asked)
	if err != nil {
		return op.Op{}, fmt.Errorf("encode request: %w", err)
	}
	d.admit.Lock()
	defer d.admit.Unlock()
	if o, known, err := d.repeated(ctx, req, asked); known || err != nil {
		return o, err
	}
	in, err := d.decided(ctx, req)
	if err != nil {
		return op.Op{}, err
	}
	in.SetAsked(asked)
	data, err := json.Marshal(in)
	if err != nil {
		return op.Op{}, fmt.Errorf("encode input of op %s: %w", req.OpID, err)
	}
	d.goOn(ctx, in.Keys())
	o := op.Op{ID: req.OpID, Kind: req.kindFor(in), Group: in.Group(), Keys: in.Keys(), Input: data, CreatedAt: time.Now().UTC()}
	if err := d.Runner.Submit(ctx, o); err != nil {
		return op.Op{}, api.Errorf(api.CodeJournalUnavailable, "cannot begin: %v; nothing was changed", err)
	}
	d.Log.Info("begun", "kind", o.Kind, "op", o.ID, "for", o.Group, "keys", o.Keys)
	return o, nil
}

// decided bounds the checks: whoever hangs must not hold up other requests.
func (d *Desk) decided(ctx context.Context, req Request) (Input, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience())
	defer cancel()
	in, err := req.Decide(ctx)
	return in, Refused(err)
}

// repeated finds the op of a request that was made before.
func (d *Desk) repeated(ctx context.Context, req Request, asked []byte) (o op.Op, known bool, err error) {
	o, err = d.Journal.Op(ctx, req.OpID)
	if errors.Is(err, op.ErrNotFound) {
		return o, false, nil
	}
	if err != nil {
		return o, false, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	var before Asked
	same := o.Kind == req.Kind || o.Kind == req.Variant
	if same {
		if err := json.Unmarshal(o.Input, &before); err != nil {
			return o, true, fmt.Errorf("compare with op %s: %w", req.OpID, err)
		}
	}
	if !same || string(before.Asked) != string(asked) {
		return o, true, api.Errorf(api.CodeIdempotencyMismatch, "op %s was used for another request", req.OpID)
	}
	return o, true, nil
}

// Knows says whether there is an op with this id.
func (d *Desk) Knows(ctx context.Context, opID string) (bool, error) {
	_, err := d.Journal.Op(ctx, opID)
	if errors.Is(err, op.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
	}
	return true, nil
}

// goOn is the operator's word to those ops of the manager that wait for him and
// are in the way of a new one: he has looked, and asks again.
func (d *Desk) goOn(ctx context.Context, keys []string) {
	for _, st := range d.Runner.Active() {
		if st.State != op.StateNeedsOperator || !d.ours(st.Op.Kind) || !share(st.Op.Keys, keys) {
			continue
		}
		if err := d.Runner.Continue(ctx, st.Op.ID); err != nil {
			d.Log.Warn("an op that waits for the operator cannot go on", "op", st.Op.ID, "err", err)
		}
	}
}

// lookAgainBound is how long LookAgain waits for an op that goes on.
const lookAgainBound = 5 * time.Second

// LookAgain is the operator's word to those ops of the manager that wait for him and
// have one of these keys, for a request that would be refused because of what they
// have done so far. It waits a little for their end.
func (d *Desk) LookAgain(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(ctx, lookAgainBound)
	defer cancel()
	for _, st := range d.Runner.Active() {
		if st.State != op.StateNeedsOperator || !d.ours(st.Op.Kind) || !share(st.Op.Keys, keys) {
			continue
		}
		err := d.Runner.Continue(ctx, st.Op.ID)
		if err == nil {
			_, err = d.Runner.Wait(ctx, st.Op.ID)
		}
		if err != nil {
			d.Log.Warn("an op that waits for the operator has not come to its end", "op", st.Op.ID, "err", err)
		}
	}
}

// AtWork says whether an op that is not finished, of whichever manager, has one of
// these keys.
func (d *Desk) AtWork(keys []string) bool {
	return slices.ContainsFunc(d.Runner.Active(), func(st op.Status) bool { return share(st.Op.Keys, keys) })
}

func (d *Desk) ours(kind string) bool { return slices.Contains(d.Kinds, kind) }

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(k string) bool { return slices.Contains(b, k) })
}
