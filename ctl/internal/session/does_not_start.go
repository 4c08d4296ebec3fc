// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/ctl/internal/unit"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/shell"
)

const (
	// unitAfter is the time before systemd is first asked whether the program has started.
	unitAfter = time.Second
	unitPoll  = 250 * time.Millisecond
)

const detailDoesNotStart = "does_not_start"

// watchUnit ends a request to a program that does not start: systemd's socket accepts the request
// all the same. The context's cause is then the reason. A program that died once gets a second
// start.
func (s *Session) watchUnit(ctx context.Context) (watched context.Context, stop func()) {
	if s.ShowUnit == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.awaitUnit(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// awaitUnit returns nil once the program has started, or if its state is unknown. After systemd
// has given up, or another start has ended too, it returns an error.
func (s *Session) awaitUnit(ctx context.Context) error {
	var first *unit.State
	for pause := unitAfter; retry.Sleep(ctx, pause) == nil; pause = unitPoll {
		now, err := s.ShowUnit(ctx, s.unit())
		if err != nil || now.Up() {
			return nil //nolint:nilerr // without systemd's word the request waits as before
		}
		if !now.Ended() {
			continue
		}
		if now.GivenUp() || first != nil && now.Restarts > first.Restarts {
			return s.notStarted(now)
		}
		if first == nil {
			first = &now
		}
	}
	return nil
}

func (s *Session) unit() string { return s.program() + ".service" }

func (s *Session) notStarted(now unit.State) error {
	code := api.CodeHypervisorUnavailable
	if s.program() == registryProgram {
		code = api.CodeRegistryUnavailable
	}
	advice := fmt.Sprintf("'%[1]s check-config' checks its configuration; 'journalctl -u %[1]s -n 30' shows its last messages.", s.program())
	if now.GivenUp() {
		advice += "\nAfter the fix: " + shell.Line("systemctl", "reset-failed", s.unit(), s.program()+".socket") + " && " + shell.Line("systemctl", "start", s.program()+".socket", s.unit())
	} else {
		advice += "\nAfter the fix it starts by itself: systemd tries again every few seconds."
	}
	return &AdvisedError{
		Err:    api.Errorf(code, "%s does not start: %s", s.program(), now.Why()).With(detailDoesNotStart, s.unit()),
		Exit:   api.ExitUnavailable,
		Advice: advice,
	}
}

func startFailure(ctx context.Context) error {
	if ctx.Err() == nil || !IsStartFailure(context.Cause(ctx)) {
		return nil
	}
	return context.Cause(ctx)
}

// IsStartFailure reports whether err means that a program does not start, so that further requests
// are useless.
func IsStartFailure(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Details[detailDoesNotStart] != nil
}
