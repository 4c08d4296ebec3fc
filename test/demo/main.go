// SPDX-License-Identifier: Apache-2.0

// Program demo shows Volferry at its main job on one machine and proves the
// outcome: it boots a guest that writes all the time, moves its volume, cancels
// a second move half way, moves the volume of the stopped guest, and each time
// holds every block of the volume against what the guest was told is written.
//
// It types the commands that an operator would, and knows nothing of Volferry
// beyond them. Everything it makes is below one directory, which it removes,
// however it ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit statuses.
const (
	exitFailed      = 1
	exitCannotRun   = 2
	exitInterrupted = 130
)

// limit ends a demo that hangs. The installation is not part of it.
const limit = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, &narrator{out: os.Stdout})
	stop()
	os.Exit(code)
}

// run plays the demo, says how it went and returns the exit status.
func run(ctx context.Context, n *narrator) int {
	err := prepare(ctx, n)
	switch {
	case ctx.Err() != nil:
		n.say("\nINTERRUPTED before anything was started.")
		return exitInterrupted
	case err != nil:
		n.say("\nThe demo cannot run here: %v", err)
		return exitCannotRun
	}
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
	defer cancel()
	results, err := play(limited, n)
	left := (*leftError)(nil)
	switch {
	case ctx.Err() != nil && errors.As(err, &left):
		n.say("\nINTERRUPTED before the end, and FAILED to %v", left)
		return exitFailed
	case ctx.Err() != nil:
		n.say("\nINTERRUPTED before the end. Everything was removed again.")
		return exitInterrupted
	case err != nil:
		n.say("\nFAILED: %v", errors.Join(err, context.Cause(limited)))
		return exitFailed
	}
	n.heading("The result")
	n.say("%s", table(results))
	n.say("OK after %.0f s: all three times every write that the guest was told is done was", time.Since(began).Seconds())
	n.say("found in its place, and nothing is left behind.")
	return 0
}

// play runs the three scenarios on a stage of their own, and clears it away.
func play(ctx context.Context, n *narrator) (results []result, err error) {
	s, err := setUp(ctx, n)
	defer func() {
		if err != nil && ctx.Err() == nil {
			n.say("%s", s.logs())
		}
		n.say("\nStopping and removing everything.")
		if cleanup := s.close(); cleanup != nil {
			err = errors.Join(err, &leftError{err: cleanup})
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, scenario := range []func(context.Context, *stage) (result, error){moveRunning, cancelHalfWay, moveStopped} {
		r, err := scenario(ctx, s)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, s.nothingLeft(ctx)
}

// leftError says what could not be removed.
type leftError struct{ err error }

func (e *leftError) Error() string { return "remove everything: " + e.err.Error() }
func (e *leftError) Unwrap() error { return e.err }
