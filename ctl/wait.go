// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// work is an op that lasts, with the migration that it is part of.
type work struct {
	op        api.Op
	migration *api.Migration
}

// perform sends a mutation and stays until what it asked for is over. It returns
// the last answer: the mutation's own where that was all, else one with the
// op, and its migration where it has one, as they ended. Finished is false
// where the user did not want to wait; the ids have been printed then.
func perform[In, Out any](ctx context.Context, s *session, route routes.Route[In, Out], in In, refs ...string) (a answer, finished bool, err error) {
	a, err = send(ctx, s, route, in, refs...)
	if err != nil || !a.has("op") {
		return a, err == nil, err
	}
	w, err := readWork(a)
	if err != nil {
		return answer{}, false, err
	}
	if s.noWait {
		return a, false, s.printStarted(a, w)
	}
	last, err := s.await(ctx, w)
	if err == nil && a.has(route.Noun) && !last.has(route.Noun) {
		last = last.with(route.Noun, a.members[route.Noun])
	}
	return last, err == nil, err
}

func readWork(a answer) (work, error) {
	var w work
	if err := a.decode("op", &w.op); err != nil {
		return work{}, err
	}
	if a.has("migration") {
		if err := a.decode("migration", &w.migration); err != nil {
			return work{}, err
		}
	}
	return w, nil
}

// printStarted is the result of --no-wait: the migration's id, or the op's.
func (s *session) printStarted(a answer, w work) error {
	if s.json {
		return render.JSON(s.stdout, a.members)
	}
	id := w.op.ID
	if w.migration != nil {
		id = w.migration.ID
	}
	s.say("Started operation %s.\n%s", w.op.ID, w.advice())
	return s.printLines(id)
}

// await follows an op to its end.
func (s *session) await(ctx context.Context, w work) (answer, error) {
	display := s.newDisplay()
	stopTelling := s.tellWaits(ctx, display, w.op.ID, "")
	if w.migration != nil {
		display.migration(w.migration)
	}
	f := follower{
		open: func(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
			return s.stream(ctx, routes.FollowOp.With("since", strconv.FormatInt(since, 10)).PathOf(w.op.ID))
		},
		ended: func(ctx context.Context) (bool, error) {
			op, _, err := show(ctx, s, routes.ShowOp, w.op.ID)
			return err == nil && opOver(op.State), err
		},
		lost: display.lost,
	}
	err := f.run(ctx, 0, func(e api.Event) bool {
		display.event(e)
		return !opOver(e.Result)
	})
	stopTelling()
	display.close()
	if err != nil {
		return answer{}, s.notFollowed(err, w.advice())
	}
	a, err := s.settle(ctx, &w)
	if err != nil {
		return answer{}, err
	}
	display.ended(w.migration)
	return a, w.failure()
}

func opOver(state string) bool {
	return state == api.OpDone || state == api.OpUndone || state == api.OpNeedsOperator
}

// notFollowed is what became of waiting that did not see the end.
func (s *session) notFollowed(err error, advice string) error {
	switch {
	case errors.Is(err, context.Canceled):
		return &detachedError{advice: "Detached; the operation goes on.\n" + advice}
	case errors.Is(err, errLost):
		return &advisedError{
			err: api.Errorf(api.CodeHypervisorUnavailable, "%s did not come back within %s; the operation goes on when it does",
				s.client.Target(), render.Duration(patience)),
			exit:   api.ExitUnavailable,
			advice: advice,
		}
	}
	return err
}

// advice tells how to follow and how to cancel.
func (w work) advice() string {
	if w.migration == nil {
		return fmt.Sprintf("Follow it: %s op watch %s", programName, w.op.ID)
	}
	if w.migration.State == api.MigrationCancelling || strings.HasSuffix(w.op.Kind, "cancel") {
		return fmt.Sprintf("Follow it: %s migration watch %s", programName, w.migration.ID)
	}
	return fmt.Sprintf("Follow it: %[1]s migration watch %[2]s\nCancel it: %[1]s migration cancel %[3]s",
		programName, w.migration.ID, handle(w.migration))
}

// handle is what the migration verbs take for m: its source's attachment, or
// its own id where the volume is not attached.
func handle(m *api.Migration) string {
	if m.SrcAttachmentID != "" {
		return m.SrcAttachmentID
	}
	return m.ID
}

// settle reads into w how the op and its migration ended.
func (s *session) settle(ctx context.Context, w *work) (answer, error) {
	op, a, err := showAtLast(ctx, s, routes.ShowOp, w.op.ID)
	if err != nil {
		return answer{}, err
	}
	w.op = *op
	id := w.op.MigrationID
	if id == "" && w.migration != nil {
		id = w.migration.ID
	}
	if id == "" {
		return a, nil
	}
	m, ma, err := showAtLast(ctx, s, routes.ShowMigration, id)
	if err != nil {
		return answer{}, err
	}
	w.migration = m
	return a.with("migration", ma.members["migration"]), nil
}

// overtakenByCancel says whether the op ended because somebody cancels its
// migration, whose state does not show that in the first moment.
func (w work) overtakenByCancel() bool {
	return w.op.Error != nil && w.op.Error.Details["state"] == string(api.MigrationCancelling) && !w.migration.State.Final()
}

// failure is nil for an op that is done.
func (w work) failure() error {
	if w.op.State == api.OpDone {
		return nil
	}
	failed := &advisedError{err: w.op.Error, exit: api.ExitOpFailed}
	if w.op.State == api.OpNeedsOperator {
		failed.exit = api.ExitNeedsOperator
	}
	if w.migration != nil {
		failed.advice = standing(w.migration)
		if w.overtakenByCancel() {
			failed.advice = beingCancelled(w.migration)
		}
		if failed.err == nil {
			failed.err = w.migration.Error
		}
	}
	if failed.err == nil {
		failed.err = api.Errorf(api.CodeInternal, "operation %s (%s) ended as %s and gives no reason", w.op.ID, w.op.Kind, w.op.State)
	}
	return failed
}
