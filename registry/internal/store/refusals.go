// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// So many refusals of one caller are audited at once, and one more in each such time:
// the trail is kept for ever, and who is refused can try as often as he likes.
const (
	refusalsAtOnce = 20
	refusalEvery   = 10 * time.Second
)

// newRefusalRates are the rates of refusals that are audited.
func newRefusalRates() *rates { return newRates(rate.Every(refusalEvery), refusalsAtOnce) }

// AuditRefusal adds to the trail that a call was refused: what was called, about
// which object, and the refusal as its result. It is for calls whose attempt is
// news as well (fence, force, abandon) and are refused before they get as far as
// the store. A failure of the registry itself is no refusal and adds nothing. Of a
// caller who is refused often not every time is noted; the next that is says how many
// are missing.
func (s *Store) AuditRefusal(ctx context.Context, call Call, what, object string, refusal error) error {
	var e *api.Error
	if !errors.As(refusal, &e) || e.Code == api.CodeRegistryUnavailable || e.Code == api.CodeInternal {
		return nil
	}
	ok, missing := s.refusals.take(cmp.Or(call.Caller, call.Who), s.now())
	if !ok {
		return nil
	}
	details := map[string]any{"error": validate.ClipTo(maxRefusal, e.Message)}
	if missing > 0 {
		details["refusals_not_recorded"] = missing
	}
	opID := call.Key
	call.Key, call.Host = "", nil
	_, err := mutateIf(ctx, s, call, what, nil, admitAlways, func(ctx context.Context, tx *Tx) (struct{}, error) {
		return struct{}{}, tx.Audit(ctx, api.Event{
			What: what, Object: validate.ClipTo(validate.MaxText, object), OpID: opID, Result: string(e.Code), Details: details,
		})
	})
	if err != nil {
		return fmt.Errorf("audit refusal: %w", err)
	}
	return nil
}

// maxRefusal bounds, in bytes, what is kept of why a call was refused.
const maxRefusal = 1000
