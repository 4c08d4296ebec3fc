// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// ErrConnectionLost means that the other side did not answer for longer than outageTimeout.
var ErrConnectionLost = errors.New("no connection")

// Follower reads a stream of events, also across restarts of its sender.
type Follower struct {
	// Open begins the stream after event number since.
	Open func(ctx context.Context, since int64) iter.Seq2[api.Event, error]
	// Ended reports whether the work is over. It is called after a stream without its last event.
	Ended func(ctx context.Context) (bool, error)
	// OnOutage is called once per outage.
	OnOutage func(error)
}

// Events returns a Follower's Open for a route; refs are the references in the route's path.
func Events[In, Out any](s *Session, route routes.Route[In, Out], refs ...string) func(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
	return func(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
		return s.stream(ctx, route.With("since", strconv.FormatInt(since, 10)).PathOf(refs...))
	}
}

// Run calls the function see with every event after since, in order and once, until see returns
// false, the work is over, or ctx ends. After outageTimeout without an answer, it returns
// ErrConnectionLost joined with the last error.
func (f *Follower) Run(ctx context.Context, since int64, see func(api.Event) bool) error {
	contact := time.Now()
	told := false
	backoff := outageBackoff
	for {
		broken := error(nil)
		for e, err := range f.Open(ctx, since) {
			if err != nil {
				broken = err
				break
			}
			since, contact, told = max(since, e.Seq), time.Now(), false
			backoff.Reset()
			if !see(e) {
				return nil
			}
		}
		over, err := f.check(ctx, broken)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && over:
			return nil
		case err == nil:
			contact, told = time.Now(), false
		case !isOutage(err):
			return err
		case time.Since(contact) > outageTimeout:
			return errors.Join(ErrConnectionLost, err)
		case !told:
			f.OnOutage(err)
			told = true
		}
		if err := backoff.Sleep(ctx); err != nil {
			return err
		}
	}
}

// check reports after a broken stream whether the work is over: an error that is no outage is
// final; otherwise Ended decides.
func (f *Follower) check(ctx context.Context, broken error) (over bool, err error) {
	if broken != nil && !isOutage(broken) {
		return false, broken
	}
	return f.Ended(ctx)
}
