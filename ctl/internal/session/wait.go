// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"strings"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

// Work is an op that takes time, and its migration, if it has one.
type Work struct {
	Op        api.Op
	Migration *api.Migration
	cancels   bool
}

// Perform sends a change and waits for its work. The answer then has the op and its migration in
// their final state. If the user did not want to wait, finished is false, and the ids are printed.
func Perform[In, Out any](ctx context.Context, s *Session, route routes.Route[In, Out], in In, refs ...string) (resp Response, finished bool, err error) {
	resp, err = Send(ctx, s, route, in, refs...)
	if err != nil || !resp.Has("op") {
		return resp, err == nil, err
	}
	w, err := readWork(resp)
	if err != nil {
		return Response{}, false, err
	}
	w.cancels = strings.HasSuffix(route.Path, "cancel")
	if s.NoWait {
		return resp, false, s.printStarted(resp, w)
	}
	last, err := s.Await(ctx, w)
	if err != nil {
		return last, false, err
	}
	for name, member := range resp.Members { // other members of the first answer
		if resp.Has(name) && !last.Has(name) {
			last = last.With(name, member)
		}
	}
	last.Earlier = resp.Earlier
	return last, true, nil
}

func readWork(resp Response) (Work, error) {
	var w Work
	if err := resp.Decode("op", &w.Op); err != nil {
		return Work{}, err
	}
	if resp.Has("migration") {
		if err := resp.Decode("migration", &w.Migration); err != nil {
			return Work{}, err
		}
	}
	return w, nil
}

func (s *Session) printStarted(resp Response, w Work) error {
	if s.JSON {
		return render.JSON(s.Stdout, resp.Members)
	}
	what, id := "operation", w.Op.ID
	if w.Migration != nil {
		what, id = "migration", w.Migration.ID
	}
	s.Say("Started %s %s.\n%s", what, id, w.Advice())
	return s.PrintLines(id)
}

// Await follows an op to its end.
func (s *Session) Await(ctx context.Context, w Work) (Response, error) {
	display := s.NewDisplay()
	stopNotice := s.startWaitNotice(ctx, display.say, w.Op.ID, "")
	if w.Migration != nil {
		display.ShowMigration(w.Migration)
	}
	f := Follower{
		Open: Events(s, routes.FollowOp, w.Op.ID),
		Ended: func(ctx context.Context) (bool, error) {
			op, _, err := Show(ctx, s, routes.ShowOp, w.Op.ID)
			return err == nil && opFinished(op.State), err
		},
		OnOutage: display.Outage,
	}
	err := f.Run(ctx, 0, func(e api.Event) bool {
		display.ShowEvent(e)
		return !opFinished(e.Result)
	})
	stopNotice()
	display.Close()
	if err != nil {
		return Response{}, s.FollowError(err, w.Advice())
	}
	resp, err := s.readEnd(ctx, &w)
	if err != nil {
		return Response{}, err
	}
	display.Finish(w.Migration)
	return resp, w.failure()
}

// FollowError returns the error for a wait that ended before the work did.
func (s *Session) FollowError(err error, advice string) error {
	switch {
	case errors.Is(err, context.Canceled):
		return &DetachedError{Advice: "Detached; the operation continues.\n" + advice}
	case errors.Is(err, ErrConnectionLost):
		return &AdvisedError{
			Err: api.Errorf(api.CodeHypervisorUnavailable, "%s did not come back within %s; the operation continues when it does",
				s.Client.Target(), render.Duration(outageTimeout)),
			Exit:   api.ExitUnavailable,
			Advice: advice,
		}
	}
	return err
}

// Advice returns the commands that follow the work and cancel it.
func (w Work) Advice() string {
	if w.Migration == nil {
		return "Follow it: " + shell.Line(Program, "op", "watch", w.Op.ID)
	}
	follow := "Follow it: " + shell.Line(Program, "migration", "watch", w.Migration.ID)
	if w.Migration.State == api.MigrationCancelling || strings.HasSuffix(w.Op.Kind, "cancel") {
		return follow
	}
	return follow + "\nCancel it: " + shell.Line(Program, "migration", "cancel", w.Migration.ID)
}

func (s *Session) readEnd(ctx context.Context, w *Work) (Response, error) {
	op, resp, err := ShowRetrying(ctx, s, routes.ShowOp, w.Op.ID)
	if err != nil {
		return Response{}, err
	}
	w.Op = *op
	id := w.Op.MigrationID
	if id == "" && w.Migration != nil {
		id = w.Migration.ID
	}
	if id == "" {
		return resp, nil
	}
	m, moveResp, err := ShowRetrying(ctx, s, routes.ShowMigration, id)
	if err != nil {
		return Response{}, err
	}
	w.Migration = m
	return resp.With("migration", moveResp.Members["migration"]), nil
}

func (w Work) beingCancelled() bool {
	return w.Op.Error != nil && w.Op.Error.Details["state"] == string(api.MigrationCancelling) && !w.Migration.State.Final()
}

// cancelRefused reports whether the op was a cancel that failed before it changed anything.
func (w Work) cancelRefused() bool {
	return strings.HasPrefix(w.Op.Kind, "migration_cancel") && (w.Migration.State == api.MigrationStarted || w.Migration.State == api.MigrationCopied)
}

// tookBack reports whether a cancel has undone a start that waited for the operator.
func (w Work) tookBack() bool {
	return w.cancels && w.Op.Error != nil && w.Op.Error.Details["state"] == string(api.MigrationCancelling) && w.Migration != nil && w.Migration.State == api.MigrationError
}

func (w Work) failure() error {
	if w.Op.State == api.OpDone || w.tookBack() {
		return nil
	}
	failed := &AdvisedError{Err: w.Op.Error, Exit: api.ExitOpFailed}
	if w.Op.State == api.OpNeedsOperator {
		failed.Exit = api.ExitNeedsOperator
	}
	if w.Migration != nil {
		failed.Advice = StandingText(w.Migration)
		switch {
		case w.beingCancelled():
			failed.Advice = cancellingAdvice(w.Migration)
		case w.cancelRefused():
			failed.Advice = cancelStandingText(w.Migration)
		}
		if failed.Err == nil {
			failed.Err = w.Migration.Error
		}
	}
	if failed.Err == nil {
		failed.Err = api.Errorf(api.CodeInternal, "operation %s (%s) ended as %s and gives no reason", w.Op.ID, w.Op.Kind, w.Op.State)
	}
	return failed
}
