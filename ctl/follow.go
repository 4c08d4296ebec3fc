// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// patience is how long a daemon may be away, restarting, before following it is
// given up.
const patience = time.Minute

// outageBackoff is how often a daemon that is away is asked.
var outageBackoff = retry.Backoff{First: 200 * time.Millisecond, Max: 2 * time.Second}

// errLost says that the other side stayed away longer than patience.
var errLost = errors.New("no connection")

// follower reads a stream of events across restarts of whoever writes it.
type follower struct {
	// open begins the stream after event number since.
	open func(ctx context.Context, since int64) iter.Seq2[api.Event, error]
	// ended asks whether what is followed is over, for a stream that broke off
	// before it said so.
	ended func(ctx context.Context) (bool, error)
	// lost is told once of each outage.
	lost func(error)
}

// run hands every event after since to see, in order and once, until see
// returns false, what is followed is over, ctx ends, or the other side stays
// away too long (errLost, with the last reason).
func (f *follower) run(ctx context.Context, since int64, see func(api.Event) bool) error {
	contact := time.Now()
	told := false
	backoff := outageBackoff
	for {
		broken := error(nil)
		for e, err := range f.open(ctx, since) {
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
		case time.Since(contact) > patience:
			return errors.Join(errLost, err)
		case !told:
			f.lost(err)
			told = true
		}
		if err := backoff.Sleep(ctx); err != nil {
			return err
		}
	}
}

// check decides what a stream that ended means. An answer that is no outage (the
// thing is gone, say) is final; anything else is settled by asking.
func (f *follower) check(ctx context.Context, broken error) (over bool, err error) {
	if broken != nil && !isOutage(broken) {
		return false, broken
	}
	return f.ended(ctx)
}

// isOutage says whether err may pass by itself: no answer at all, or one that
// says that the other side is not there yet.
func isOutage(err error) bool {
	var answer *api.Error
	if !errors.As(err, &answer) {
		return true
	}
	return answer.Code.ExitStatus() == api.ExitUnavailable
}

// outlast asks until there is an answer, or the other side stays away too long.
func outlast(ctx context.Context, ask func() error) error {
	return retry.Do(ctx, outageBackoff, patience, ask, isOutage)
}
