// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"strings"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Work is an op that takes a while, and the migration that it belongs to, if any.
type Work struct {
	Op        api.Op
	Migration *api.Migration
	// cancels: it was asked for to take the migration back.
	cancels bool
}

// Perform sends a mutation and waits for the end of the work that it starts. It returns
// the answer to the mutation if there is no such work, and otherwise an answer with the
// op and its migration as they ended. finished is false if the user did not want to
// wait; the ids have been printed then.
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
	for name, member := range resp.Members { // what else was said when it began
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

// printStarted prints the result of --no-wait: the id of the migration or of the op.
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

// FollowError is the error of a wait that ended before the work did.
func (s *Session) FollowError(err error, advice string) error {
	switch {
	case errors.Is(err, context.Canceled):
		return &DetachedError{Advice: "Detached; the operation goes on.\n" + advice}
	case errors.Is(err, ErrConnectionLost):
		return &AdvisedError{
			Err: api.Errorf(api.CodeHypervisorUnavailable, "%s did not come back within %s; the operation goes on when it does",
				s.Client.Target(), render.Duration(outageTimeout)),
			Exit:   api.ExitUnavailable,
			Advice: advice,
		}
	}
	return err
}

// Advice says how to follow the work and how to cancel it.
func (w Work) Advice() string {
	if w.Migration == nil {
		return "Follow it: " + api.ShellLine(Program, "op", "watch", w.Op.ID)
	}
	follow := "Follow it: " + api.ShellLine(Program, "migration", "watch", w.Migration.ID)
	if w.Migration.State == api.MigrationCancelling || strings.HasSuffix(w.Op.Kind, "cancel") {
		return follow
	}
	return follow + "\nCancel it: " + api.ShellLine(Program, "migration", "cancel", w.Migration.ID)
}

// readEnd reads into w how the op and its migration ended.
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

// beingCancelled reports whether the op ended because somebody cancels its migration. The
// state of the migration shows that a moment later.
func (w Work) beingCancelled() bool {
	return w.Op.Error != nil && w.Op.Error.Details["state"] == string(api.MigrationCancelling) && !w.Migration.State.Final()
}

// cancelRefused reports whether the op was a cancel that failed before it changed anything.
func (w Work) cancelRefused() bool {
	return strings.HasPrefix(w.Op.Kind, "migration_cancel") && (w.Migration.State == api.MigrationStarted || w.Migration.State == api.MigrationCopied)
}

// tookBack reports whether a cancel has had a start undone that waited for the operator: then there
// was nothing more to cancel.
func (w Work) tookBack() bool {
	return w.cancels && w.Op.Error != nil && w.Op.Error.Details["state"] == string(api.MigrationCancelling) && w.Migration != nil && w.Migration.State == api.MigrationError
}

// failure is nil for an op that is done.
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
