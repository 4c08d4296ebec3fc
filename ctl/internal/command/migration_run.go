// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func runMigration[In any](ctx context.Context, s *session.Session, route routes.Route[In, api.Migration], in In, refs ...string) error {
	resp, finished, err := session.Perform(ctx, s, route, in, refs...)
	if err != nil || !finished {
		return err
	}
	if resp.Has("op") || !resp.Has("migration") {
		return printMigration(s, resp)
	}
	cancels := route.Declaration == routes.CancelMigration.Declaration
	return followPaused(ctx, s, resp, cancels)
}

func printMigration(s *session.Session, resp session.Response) error {
	var m api.Migration
	if err := resp.Decode("migration", &m); err != nil {
		return err
	}
	lines := session.OutcomeText(&m)
	if was := overBefore(s, resp, &m); was != "" {
		lines = []string{was}
	}
	return s.PrintResult(resp, m.ID, lines...)
}

// overBefore returns the outcome of a migration that had ended before this command, otherwise "".
func overBefore(s *session.Session, resp session.Response, m *api.Migration) string {
	if m.FinishedAt == nil || !m.FinishedAt.Before(s.Now) || resp.Has("op") && !resp.Earlier {
		return ""
	}
	name, at := render.VolumeName(m), render.Time(*m.FinishedAt)
	switch m.State {
	case api.MigrationCancelled:
		return fmt.Sprintf("The move of volume %s was cancelled already, at %s: the volume stayed at %s.", name, at, render.Location(m.Src))
	case api.MigrationCompleted:
		return fmt.Sprintf("The move of volume %s was completed already, at %s: the volume went from %s to %s.", name, at, render.Location(m.Src), render.Location(m.Dst))
	default:
		return ""
	}
}

// isNotFound reports whether a request was answered with not_found. An operation that failed with
// not_found later does not count.
func isNotFound(err error) bool {
	var ended *session.AdvisedError
	return api.CodeOf(err) == api.CodeNotFound && !errors.As(err, &ended)
}

// followPaused follows a migration of several guests, which the registry leads without an op.
// cancels means that its cancel was requested.
func followPaused(ctx context.Context, s *session.Session, resp session.Response, cancels bool) error {
	m := &api.Migration{}
	if err := resp.Decode("migration", m); err != nil {
		return err
	}
	switch {
	case !m.LedByRegistry():
		return printMigration(s, resp)
	case s.NoWait && s.JSON:
		return render.JSON(s.Stdout, resp.Members)
	case s.NoWait:
		s.Say("%s", session.Work{Migration: m}.Advice())
		return s.PrintLines(m.ID)
	}
	return watchMigration(ctx, s, m, cancels)
}

// watchMigration waits as awaitMigration does, and prints the migration's state. cancels means
// that the user has cancelled it; then a migration cancelled by an error is no error.
func watchMigration(ctx context.Context, s *session.Session, m *api.Migration, cancels bool) error {
	m, resp, err := awaitMigration(ctx, s, m)
	if cancels && m != nil && m.State == api.MigrationCancelled {
		err = nil
	}
	if err != nil || s.Progress == session.ProgressJSON {
		return err
	}
	return s.PrintResult(resp, m.ID, session.OutcomeText(m)...)
}

// awaitMigration waits until a migration has ended or needs another request (migrationSettled),
// and returns its state then. A migration that needs an operator is an error.
func awaitMigration(ctx context.Context, s *session.Session, m *api.Migration) (*api.Migration, session.Response, error) {
	display := s.NewDisplay()
	display.ShowMigration(m)
	var err error
	if !migrationSettled(m) {
		f := session.Follower{
			Open: session.Events(s, routes.FollowMigration, m.ID),
			Ended: func(ctx context.Context) (bool, error) {
				now, _, err := session.Show(ctx, s, routes.ShowMigration, m.ID)
				return err == nil && migrationSettled(now), err
			},
			OnOutage: display.Outage,
		}
		err = f.Run(ctx, 0, func(e api.Event) bool {
			display.ShowEvent(e)
			return e.Migration == nil || !migrationSettled(e.Migration)
		})
	}
	display.Close()
	if err != nil {
		return m, session.Response{}, s.FollowError(err, session.Work{Migration: m}.Advice())
	}
	return endWatch(ctx, s, display, m.ID)
}

// migrationSettled reports whether a migration has ended, or needs another request after a failed
// operation.
func migrationSettled(m *api.Migration) bool {
	if m.Stopped() {
		return true
	}
	switch m.State {
	case api.MigrationStarted, api.MigrationCopied:
		return m.Error != nil
	default:
		return m.State.Final()
	}
}

func endWatch(ctx context.Context, s *session.Session, d *session.Display, id string) (*api.Migration, session.Response, error) {
	m, resp, err := session.ShowRetrying(ctx, s, routes.ShowMigration, id)
	if err != nil {
		return nil, resp, err
	}
	d.Finish(m)
	failed := &session.AdvisedError{Err: m.Error, Exit: api.ExitOpFailed, Advice: session.StandingText(m)}
	if failed.Err == nil {
		failed.Err = api.Errorf(api.CodeInternal, "migration %s is in state %s and gives no reason", m.ID, m.State)
	}
	switch {
	case m.State == api.MigrationCompleted, m.State == api.MigrationCancelled && m.Error == nil:
		return m, resp, nil
	case m.State == api.MigrationNeedsOperator, m.State == api.MigrationOrphaned:
		failed.Exit = api.ExitNeedsOperator
	}
	return m, resp, failed
}
