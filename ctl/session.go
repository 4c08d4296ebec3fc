// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/retry"
)

// The values of --progress.
const (
	progressAuto  = "auto"
	progressPlain = "plain"
	progressJSON  = "json"
	progressNone  = "none"
)

// session is one command's connection, and how its user wants answers shown.
type session struct {
	client   *client.Client
	stdout   io.Writer
	stderr   io.Writer
	json     bool
	quiet    bool
	noWait   bool
	progress string
	now      time.Time
	// saidStale: the user knows that the registry is away.
	saidStale bool
}

// change sends a mutation under an idempotency key of its own. Where the
// connection breaks before the answer, it asks again under the same key until
// it is known what was done.
func (s *session) change(ctx context.Context, method, path, noun string, in any) (a answer, err error) {
	key := uuid.NewString()
	display := s.newDisplay()
	defer s.tellWaits(ctx, display, key, "an answer from "+s.client.Target())()
	sent := false
	err = retry.Do(ctx, outageBackoff, patience, func() (err error) {
		a, err = s.call(ctx, method, path, noun, in, client.IdempotencyKey(key))
		return err
	}, func(err error) bool {
		if !isOutage(err) || !sent && !maybeDone(err) {
			return false
		}
		if !sent {
			display.lost(err)
			sent = true
		}
		return true
	})
	return a, err
}

// maybeDone says whether the connection broke with the request on its way.
func maybeDone(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Details["maybe_done"] == true
}

func (s *session) call(ctx context.Context, method, path, noun string, in any, opts ...client.Option) (answer, error) {
	var doc json.RawMessage
	if err := s.client.Do(ctx, method, path, in, &doc, append(opts, client.Whole())...); err != nil {
		return answer{}, s.explain(err)
	}
	a, err := newAnswer(noun, doc)
	if err == nil {
		s.sayIfStale(a)
	}
	return a, err
}

// sayIfStale says, once, that what is shown is from the daemon's memory.
func (s *session) sayIfStale(a answer) {
	var age float64
	if s.saidStale || s.json || string(a.members["stale"]) != "true" || json.Unmarshal(a.members["age_seconds"], &age) != nil {
		return
	}
	s.saidStale = true
	s.say("The registry is away: this is what it said %s ago.", render.Duration(time.Duration(age*float64(time.Second))))
}

// stream reads a stream of events; errors are those of call.
func (s *session) stream(ctx context.Context, path string) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for e, err := range s.client.Stream(ctx, path) {
			if err != nil {
				err = s.explain(err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// say is talk: a line on stderr.
func (s *session) say(format string, args ...any) {
	if !s.quiet {
		render.Line(s.stderr, format, args...)
	}
}

const programName = "volferryctl"

