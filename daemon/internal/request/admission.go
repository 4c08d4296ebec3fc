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

// DefaultTimeout is long enough for a restart of the registry or of libvirtd.
const DefaultTimeout = 15 * time.Second

// Input is the input of an op: the decisions that were made before anything was touched. It
// embeds Body and is encoded as JSON.
type Input interface {
	// Keys are what the op keeps other ops away from (op.Op.Keys). Group is its group.
	Keys() []string
	Group() string
	SetBody(body json.RawMessage)
}

// Varied is an Input that may choose another kind for its op: one of the Variants of its
// request, given the kind of the request.
type Varied interface {
	Input
	Variant(kind string) string
}

// Body is what the caller sent, as JSON, to tell a repeated request from another request
// with the same id. It is empty for an op that nobody asked for.
type Body struct {
	Body json.RawMessage `json:"asked,omitempty"`
}

// SetBody implements Input.
func (b *Body) SetBody(body json.RawMessage) { b.Body = body }

// Request is a caller's request under an op id.
type Request struct {
	OpID string
	Kind string
	// Variants are the other kinds that the op may get, if its input chooses one (Varied).
	Variants []string
	// Body is what the caller sent.
	Body any
	// Decide makes all checks and decides what is to be done. It changes nothing. It is
	// called for a new request only, while no other request is admitted.
	Decide func(ctx context.Context) (Input, error)
}

// kindFor is the kind of the op with this input.
func (r *Request) kindFor(in Input) string {
	if v, ok := in.(Varied); ok {
		return v.Variant(r.Kind)
	}
	return r.Kind
}

// mayHave reports whether the op of the request may be of this kind.
func (r *Request) mayHave(kind string) bool {
	return kind == r.Kind || slices.Contains(r.Variants, kind)
}

// Admission admits the requests of one manager: each becomes one op. Its fields are set
// before its first call. Safe for concurrent use.
type Admission struct {
	Runner  *op.Runner
	Journal op.Journal
	Log     *slog.Logger
	// Kinds are the manager's op kinds that are soon over. A request waits behind such ops;
	// if one waits for the operator, it goes on when the operator asks for something else.
	Kinds []string
	// Timeout is how long a request waits for a system that is away; 0 is DefaultTimeout.
	Timeout time.Duration
	// Busy is the code of the error if another op keeps a request from being carried out;
	// "" is instance_busy.
	Busy api.Code
	// Waits says in words what an op of this manager waits for, if the admission's own
	// words do not fit. If it is nil or returns "", the admission's words are used.
	Waits func(op.Status) string
	// Now stamps ops. Nil: time.Now.
	Now func() time.Time

	// admitting is held from the look at earlier requests to the submission of an op, so
	// that nothing else is admitted in between.
	admitting chan struct{}
	once      sync.Once // makes admitting
}

func (a *Admission) timeout() time.Duration {
	if a.Timeout > 0 {
		return a.Timeout
	}
	return DefaultTimeout
}

func (a *Admission) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// Lock keeps requests from being admitted until Unlock, for a manager that looks at its ops
// and begins another one by itself. It is a channel and no sync.Mutex: in a bubble of
// testing/synctest, time goes on while somebody waits for it.
func (a *Admission) Lock() {
	a.once.Do(func() { a.admitting = make(chan struct{}, 1) })
	a.admitting <- struct{}{}
}

// Unlock ends what Lock began.
func (a *Admission) Unlock() { <-a.admitting }

// Submit stores and starts the op of a request, and returns it. For a repeated request it
// returns the op that is there.
func (a *Admission) Submit(ctx context.Context, req Request) (op.Op, error) {
	body, err := json.Marshal(req.Body)
	if err != nil {
		return op.Op{}, fmt.Errorf("encode request: %w", err)
	}
	a.Lock()
	defer a.Unlock()
	if o, known, err := a.repeated(ctx, req, body); known || err != nil {
		return o, err
	}
	in, err := a.decided(ctx, req)
	if err != nil {
		return op.Op{}, err
	}
	in.SetBody(body)
	return a.Begin(ctx, req.OpID, req.kindFor(in), in)
}

// Begin stores and starts an op: for a request, or one that the manager begins by itself.
// The caller holds the lock.
func (a *Admission) Begin(ctx context.Context, opID, kind string, in Input) (op.Op, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return op.Op{}, fmt.Errorf("encode input of op %s: %w", opID, err)
	}
	a.continueParked(ctx, in.Keys())
	o := op.Op{ID: opID, Kind: kind, Group: in.Group(), Keys: in.Keys(), Input: data, CreatedAt: a.now().UTC()}
	err = a.Runner.Submit(ctx, o)
	if errors.Is(err, op.ErrMismatch) { // another manager was faster
		return op.Op{}, usedForAnother(opID)
	}
	if err != nil {
		return op.Op{}, api.Errorf(api.CodeJournalUnavailable, "cannot begin: %v; nothing was changed", err)
	}
	a.Log.Info("begun", "kind", o.Kind, "op", o.ID, "for", o.Group, "keys", o.Keys)
	return o, nil
}

func usedForAnother(opID string) *api.Error {
	return api.Errorf(api.CodeIdempotencyMismatch, "op %s was used for another request", opID)
}

// decided bounds the checks: whoever hangs must not hold up other requests.
func (a *Admission) decided(ctx context.Context, req Request) (Input, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	in, err := req.Decide(ctx)
	return in, Refused(err)
}

// repeated finds the op of a request that was made before.
func (a *Admission) repeated(ctx context.Context, req Request, body []byte) (o op.Op, known bool, err error) {
	o, err = a.Journal.Op(ctx, req.OpID)
	if errors.Is(err, op.ErrNotFound) {
		return o, false, nil
	}
	if err != nil {
		return o, false, JournalError(err)
	}
	if !req.mayHave(o.Kind) {
		return o, true, usedForAnother(req.OpID)
	}
	var before Body
	if err := json.Unmarshal(o.Input, &before); err != nil {
		return o, true, fmt.Errorf("compare with op %s: %w", req.OpID, err)
	}
	if string(before.Body) != string(body) {
		return o, true, usedForAnother(req.OpID)
	}
	return o, true, nil
}

// Known reports whether there is an op with this id.
func Known(ctx context.Context, r *op.Runner, opID string) (bool, error) {
	_, err := r.Status(ctx, opID)
	if errors.Is(err, op.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, JournalError(err)
	}
	return true, nil
}

// continueParked lets those ops of the manager go on that wait for the operator and are in the
// way of a new op: the operator has looked at them, and asks for something else now.
func (a *Admission) continueParked(ctx context.Context, keys []string) {
	for _, st := range a.Runner.Active() {
		if st.State != op.StateNeedsOperator || !a.ours(st.Op.Kind) || !share(st.Op.Keys, keys) {
			continue
		}
		if err := a.Runner.Continue(ctx, st.Op.ID); err != nil {
			a.Log.Warn("an op that waits for the operator cannot go on", "op", st.Op.ID, "err", err)
		}
	}
}

// lookAgainBound is how long LookAgain waits for an op that goes on.
const lookAgainBound = 5 * time.Second

// LookAgain tells those ops of the manager that wait for the operator and have one of these
// keys to go on, for a request that would otherwise be refused because of what they have
// done so far. It waits a little for their end.
func (a *Admission) LookAgain(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(ctx, lookAgainBound)
	defer cancel()
	for _, st := range a.Runner.Active() {
		if st.State != op.StateNeedsOperator || !a.ours(st.Op.Kind) || !share(st.Op.Keys, keys) {
			continue
		}
		err := a.Runner.Continue(ctx, st.Op.ID)
		if err == nil {
			_, err = a.Runner.Wait(ctx, st.Op.ID)
		}
		if err != nil {
			a.Log.Warn("an op that waits for the operator has not come to its end", "op", st.Op.ID, "err", err)
		}
	}
}

// AtWork reports whether an unfinished op, of any manager, has one of these keys.
func (a *Admission) AtWork(keys []string) bool {
	return slices.ContainsFunc(a.Runner.Active(), func(st op.Status) bool { return share(st.Op.Keys, keys) })
}

func (a *Admission) ours(kind string) bool { return slices.Contains(a.Kinds, kind) }

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(k string) bool { return slices.Contains(b, k) })
}
