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

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// DefaultTimeout is long enough for a restart of the registry or of libvirtd.
const DefaultTimeout = 15 * time.Second

// ErrServed is the error of Decide if an unfinished op already does the request's work.
var ErrServed = errors.New("an op does this already")

// Input is the input of an op: the decisions made before its first change. It embeds Body and is
// encoded as JSON.
type Input interface {
	// Keys are the op's keys: ops with a common key exclude each other (op.Op.Keys). Group is the
	// op's group.
	Keys() []string
	Group() string
	SetBody(body json.RawMessage)
}

// Varied is an Input that may choose another kind for its op. Variant gets the request's kind, and
// returns it or one of the request's Variants.
type Varied interface {
	Input
	Variant(kind string) string
}

// Planned is an Input that chooses its op's steps and commit point.
type Planned interface {
	Input
	Plan() (steps []op.StepRef, commit string)
}

// Body is the request as JSON. It distinguishes a repeated request from another request with the
// same id. It is empty for an op without a request.
type Body struct {
	Body json.RawMessage `json:"asked,omitempty"`
}

// SetBody implements Input.
func (b *Body) SetBody(body json.RawMessage) { b.Body = body }

// Request is a caller's request under an op id.
type Request struct {
	OpID string
	Kind string
	// Variants are other kinds that the input may choose (Varied).
	Variants []string
	Body     any
	// Decide makes all checks and decisions of a new request, and changes nothing. While it runs,
	// no other request is admitted.
	Decide func(ctx context.Context) (Input, error)
}

func (r *Request) kindFor(in Input) string {
	if v, ok := in.(Varied); ok {
		return v.Variant(r.Kind)
	}
	return r.Kind
}

func (r *Request) mayHave(kind string) bool {
	return kind == r.Kind || slices.Contains(r.Variants, kind)
}

// Admission admits a manager's requests: each becomes one op. Set the fields before the first
// call. It is safe for concurrent use.
type Admission struct {
	Runner  *op.Runner
	Journal op.Journal
	Log     *slog.Logger
	// Kinds are the kinds of the manager's ops, which are short: a request waits for them, and
	// continues those that wait for the operator.
	Kinds []string
	// Timeout is how long a request waits for a system that does not answer; 0 is DefaultTimeout.
	Timeout time.Duration
	// Busy is the code for a request that another op blocks; "" is instance_busy.
	Busy api.Code
	// Waits returns a text about the thing that an op waits for. If Waits is nil or returns "",
	// the admission uses its own text.
	Waits func(op.Status) string
	Now   func() time.Time

	// admitting is held from the search for a request's earlier op until a new op is submitted.
	admitting chan struct{}
	once      sync.Once
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

// Lock stops the admission, for a manager that reads its ops and then begins an op itself. The
// lock is a channel: in a bubble of testing/synctest, time passes while a goroutine waits for a
// channel, but not for a sync.Mutex.
func (a *Admission) Lock() {
	a.once.Do(func() { a.admitting = make(chan struct{}, 1) })
	a.admitting <- struct{}{}
}

// Unlock undoes Lock.
func (a *Admission) Unlock() { <-a.admitting }

// Submit stores, starts and returns a request's op, or returns the op of a repeated request.
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

// Begin stores and starts an op. The caller holds the lock.
func (a *Admission) Begin(ctx context.Context, opID, kind string, in Input) (op.Op, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return op.Op{}, fmt.Errorf("encode input of op %s: %w", opID, err)
	}
	a.continueParked(ctx, in.Keys())
	o := op.Op{ID: opID, Kind: kind, Group: in.Group(), Keys: in.Keys(), Input: data, CreatedAt: a.now().UTC()}
	if p, chooses := in.(Planned); chooses {
		o.Steps, o.Commit = p.Plan()
	}
	err = a.Runner.Submit(ctx, o)
	if errors.Is(err, op.ErrMismatch) { // another manager has used the id
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

// decided limits the time of the checks, so that a hanging check does not block other requests.
func (a *Admission) decided(ctx context.Context, req Request) (Input, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout())
	defer cancel()
	in, err := req.Decide(ctx)
	return in, Refused(err)
}

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

// Known reports whether an op with this id exists.
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

// continueParked continues the manager's ops that wait for the operator and have one of these
// keys: the new request shows that the operator has dealt with them.
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

const lookAgainBound = 5 * time.Second

// LookAgain continues the manager's ops that wait for the operator and have one of these keys,
// because they would make a request fail. It waits a short time for their end.
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

// AtWork reports whether an unfinished op of any manager has one of these keys.
func (a *Admission) AtWork(keys []string) bool {
	return slices.ContainsFunc(a.Runner.Active(), func(st op.Status) bool { return share(st.Op.Keys, keys) })
}

func (a *Admission) ours(kind string) bool { return slices.Contains(a.Kinds, kind) }

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(k string) bool { return slices.Contains(b, k) })
}
