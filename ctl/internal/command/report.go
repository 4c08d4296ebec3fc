// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// exitInterrupted is a shell's exit status for SIGINT: a script must not take unfinished work for
// done.
const exitInterrupted = 130

// failedChecksError reports that checks of doctor failed. They have been printed.
type failedChecksError struct{ failed, of int }

func (e *failedChecksError) Error() string {
	return fmt.Sprintf("%d of %s failed", e.failed, humanize.Count(e.of, "check"))
}

// report prints err, if any, for the user, and returns the exit status. A usage error refers to
// the help of the typed command.
func report(stderr io.Writer, err error, command string, asJSON bool) int {
	if err == nil {
		return api.ExitDone
	}
	var detached *session.DetachedError
	if errors.As(err, &detached) {
		render.Line(stderr, "%s", detached.Advice)
		return exitInterrupted
	}
	body, exit := classify(err)
	if asJSON {
		// An error of this write cannot be reported.
		_ = render.JSONLine(stderr, api.ErrorBody{Error: body})
		return exit
	}
	render.Line(stderr, "%s: %s", session.Program, body.Message)
	var advised *session.AdvisedError
	if errors.As(err, &advised) && advised.Advice != "" {
		render.Line(stderr, "%s", advised.Advice)
	}
	var usage *cmdline.UsageError
	if errors.As(err, &usage) {
		render.Line(stderr, "See '%s --help'", command)
	}
	return exit
}

func classify(err error) (*api.Error, int) {
	var (
		usage   *cmdline.UsageError
		advised *session.AdvisedError
		checks  *failedChecksError
		answer  *api.Error
	)
	switch {
	case errors.As(err, &usage):
		return api.Errorf(api.CodeInvalidArgument, "%s", usage), api.ExitUsage
	case errors.As(err, &advised):
		return advised.Err, advised.Exit
	case errors.As(err, &checks):
		return api.Errorf(api.CodeStateForbidden, "%s", checks), api.ExitRefused
	case errors.Is(err, session.ErrMaybeDone):
		return api.Errorf(api.CodeInternal, "interrupted before the answer came: the request may have been done"), exitInterrupted
	case errors.Is(err, context.Canceled):
		return api.Errorf(api.CodeInternal, "interrupted before the answer came"), exitInterrupted
	case errors.As(err, &answer):
		return answer, answer.Code.ExitStatus()
	}
	return api.AsError(err), api.ExitInternal
}
