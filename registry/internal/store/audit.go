// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/printable"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/ratelimit"
	"github.com/volferry/volferry/registry/internal/validate"
)

const (
	// postedPrefix begins the name of each event that a daemon posts, to distinguish it from events
	// of the registry itself.
	postedPrefix = "posted."
	// maxEventDetails bounds the details of a posted event, in bytes of JSON.
	maxEventDetails = 4 << 10
	// A host may post this many events at once, and then one per interval. The trail is kept for
	// ever; this limit is less than 40 MB a day.
	postsAtOnce = 100
	postEvery   = 10 * time.Second
)

func newPostLimit() *ratelimit.Limit { return ratelimit.New(rate.Every(postEvery), postsAtOnce) }

// Trail is the audit trail.
type Trail struct {
	db                      *DB
	postLimit, refusalLimit *ratelimit.Limit
}

// Events is as in ledger.Ledger.
func (s *Trail) Events(ctx context.Context, since int64) ([]api.Event, error) {
	return s.db.ledger.Events(ctx, since)
}

// LastEvents is as in ledger.Ledger.
func (s *Trail) LastEvents(ctx context.Context, since int64, n int) ([]api.Event, error) {
	return s.db.ledger.LastEvents(ctx, since, n)
}

// NextCommit is as in ledger.Ledger.
func (s *Trail) NextCommit() <-chan struct{} { return s.db.ledger.NextCommit() }

// Verify is ledger.Ledger.VerifyAudit. It cannot detect that the trail's end was cut off;
// Marks.Observe can.
func (s *Trail) Verify(ctx context.Context) (int64, error) { return s.db.ledger.VerifyAudit(ctx) }

// LastCheck returns the result of the last Verify, false if there was none.
func (s *Trail) LastCheck() (ledger.AuditCheck, bool) { return s.db.ledger.LastAudit() }

// Post adds a host's event to the trail, with the registry's time, the host's name, and
// postedPrefix. A time from the host becomes a detail.
func (s *Trail) Post(ctx context.Context, call Call, in api.EventPost) (api.Event, error) {
	if err := checkEventPost(in); err != nil {
		return api.Event{}, err
	}
	if call.Host != nil {
		if ok, _ := s.postLimit.Allow(call.Host.ID, s.db.now()); !ok {
			return api.Event{}, api.Errorf(api.CodeRegistryUnavailable, "the event was not added: a host may post %d events at once and one more every %s; try again later",
				postsAtOnce, postEvery)
		}
	}
	return Mutate(ctx, s.db, call, "event.post", in, func(ctx context.Context, tx *Tx) (api.Event, error) {
		e := api.Event{
			What: postedPrefix + in.What, Object: in.Object, From: in.From, To: in.To,
			OpID: in.OpID, Result: in.Result, Details: map[string]any{},
		}
		if !in.At.IsZero() {
			e.Details["at"] = in.At.UTC().Format(time.RFC3339Nano)
		}
		if len(in.Details) > 0 {
			e.Details["posted"] = printable.Details(in.Details)
		}
		return tx.AddEvent(ctx, e)
	})
}

// AuditSeen adds an event that the registry itself observed, without a request.
func (s *Trail) AuditSeen(ctx context.Context, what, object string) error {
	_, err := Mutate(ctx, s.db, Call{Who: "the registry"}, what, object, func(ctx context.Context, tx *Tx) (struct{}, error) {
		return struct{}{}, tx.Audit(ctx, api.Event{What: what, Object: object})
	})
	return err
}

func checkEventPost(in api.EventPost) error {
	for _, f := range []struct{ what, text string }{
		{"object", in.Object}, {"from", in.From}, {"to", in.To}, {"op_id", in.OpID}, {"result", in.Result},
	} {
		if err := validate.Text(f.what, f.text); err != nil {
			return err
		}
	}
	if err := validate.Required("what", in.What); err != nil {
		return err
	}
	details, err := json.Marshal(in.Details)
	if err != nil {
		return validate.Invalid("the details cannot be written as JSON: %v", err)
	}
	if len(details) > maxEventDetails {
		return validate.Invalid("the details have %d bytes as JSON and may have %d", len(details), maxEventDetails)
	}
	return nil
}

// A caller may cause this many audited refusals at once, and then one per interval. The trail is
// kept for ever.
const (
	refusalsAtOnce = 20
	refusalEvery   = 10 * time.Second
)

func newRefusalLimit() *ratelimit.Limit {
	return ratelimit.New(rate.Every(refusalEvery), refusalsAtOnce)
}

// AuditRefusal adds a refused call to the trail, with the refusal as its result. It is for calls
// that matter even when refused (fence, force, abandon), also before they reach the store. It
// ignores failures of the registry. Above a limit per caller it omits refusals; the next one has
// their number.
func (s *Trail) AuditRefusal(ctx context.Context, call Call, what, object string, refusal error) error {
	var e *api.Error
	if !errors.As(refusal, &e) || e.Code == api.CodeRegistryUnavailable || e.Code == api.CodeInternal {
		return nil
	}
	ok, missing := s.refusalLimit.Allow(cmp.Or(call.Caller, call.Who), s.db.now())
	if !ok {
		return nil
	}
	details := map[string]any{"error": validate.ClipTo(maxRefusal, e.Message)}
	if missing > 0 {
		details["refusals_not_recorded"] = missing
	}
	opID := call.Key
	call.Key, call.Host = "", nil
	_, err := mutateIf(ctx, s.db, call, what, nil, admitAlways, func(ctx context.Context, tx *Tx) (struct{}, error) {
		return struct{}{}, tx.Audit(ctx, api.Event{
			What: what, Object: validate.ClipTo(validate.MaxText, object), OpID: opID, Result: string(e.Code), Details: details,
		})
	})
	if err != nil {
		return fmt.Errorf("audit refusal: %w", err)
	}
	return nil
}

const maxRefusal = 1000

// mutateAudited is Mutate with the given admission, and audits a refusal (AuditRefusal) as event
// what about object.
func mutateAudited[T any](ctx context.Context, trail *Trail, call Call, what, object string, request any, admit admission, do func(context.Context, *Tx) (T, error)) (T, error) {
	v, err := mutateIf(ctx, trail.db, call, what, request, admit, do)
	if err != nil {
		err = errors.Join(err, trail.AuditRefusal(context.WithoutCancel(ctx), call, what, object, err))
	}
	return v, err
}
