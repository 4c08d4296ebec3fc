// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/time/rate"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

const (
	// postedPrefix begins the word of an event that a daemon posted, so that none can
	// be taken for a deed that the registry saw itself.
	postedPrefix = "posted."
	// maxEventDetails bounds, as JSON, what a daemon says beside that.
	maxEventDetails = 4 << 10
	// A host may post so many events at once, and one more in each such time: below
	// 40 MB a day at the very most, for the trail is kept for ever.
	postsAtOnce = 100
	postEvery   = 10 * time.Second
)

// newPostRates are the rates of events that hosts post.
func newPostRates() *rates { return newRates(rate.Every(postEvery), postsAtOnce) }

// PostEvent adds an event of a host to the trail: with the registry's time, the host's
// own name, and a word that says that it was posted. A time that the host says is a
// detail of it.
func (s *Store) PostEvent(ctx context.Context, call Call, in api.EventPost) (api.Event, error) {
	if err := checkEventPost(in); err != nil {
		return api.Event{}, err
	}
	if call.Host != nil {
		if ok, _ := s.posts.take(call.Host.ID, s.now()); !ok {
			return api.Event{}, api.Errorf(api.CodeRegistryUnavailable, "the event was not added: a host may post %d events at once and one more every %s; try again later",
				postsAtOnce, postEvery)
		}
	}
	return Mutate(ctx, s, call, "event.post", in, func(ctx context.Context, tx *Tx) (api.Event, error) {
		e := api.Event{
			What: postedPrefix + in.What, Object: in.Object, From: in.From, To: in.To,
			OpID: in.OpID, Result: in.Result, Details: map[string]any{},
		}
		if !in.At.IsZero() {
			e.Details["at"] = in.At.UTC().Format(time.RFC3339Nano)
		}
		if len(in.Details) > 0 {
			e.Details["posted"] = api.PrintableDetails(in.Details)
		}
		return tx.AddEvent(ctx, e)
	})
}

// AuditSeen adds to the trail what the registry itself has seen, of no request.
func (s *Store) AuditSeen(ctx context.Context, what, object string) error {
	_, err := Mutate(ctx, s, Call{Who: "the registry"}, what, object, func(ctx context.Context, tx *Tx) (struct{}, error) {
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
