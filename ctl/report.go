// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
)

// exitInterrupted is what a shell shows of a process that SIGINT ended. A script
// must not take what was not waited for to be done.
const exitInterrupted = 130

// failedChecksError is a doctor that found something. What it found has been
// printed.
type failedChecksError struct{ failed, of int }

func (e *failedChecksError) Error() string {
	return fmt.Sprintf("%d of %s failed", e.failed, api.Count(e.of, "check"))
}

// report tells the user of err, where there is one, and returns the exit
// status. Command is the one that was typed, whose help a wrong use of it names.
func report(stderr io.Writer, err error, command string, asJSON bool) int {
	if err == nil {
		return api.ExitDone
	}
	var detached *detachedError
	if errors.As(err, &detached) {
		render.Line(stderr, "%s", detached.advice)
		return exitInterrupted
	}
	body, exit := classify(err)
	if asJSON {
		// An error that cannot be written has nowhere else to go.
		_ = render.JSONLine(stderr, api.ErrorBody{Error: body})
		return exit
	}
	render.Line(stderr, "%s: %s", programName, body.Message)
	var advised *advisedError
	if errors.As(err, &advised) && advised.advice != "" {
		render.Line(stderr, "%s", advised.advice)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		render.Line(stderr, "See '%s --help'", command)
	}
	return exit
}

// classify gives every error its words and its exit status.
func classify(err error) (*api.Error, int) {
	var (
		usage   *usageError
		advised *advisedError
		checks  *failedChecksError
		answer  *api.Error
	)
	switch {
	case errors.As(err, &usage):
		return api.Errorf(api.CodeInvalidArgument, "%s", usage), api.ExitUsage
	case errors.As(err, &advised):
		return advised.err, advised.exit
	case errors.As(err, &checks):
		return api.Errorf(api.CodeStateForbidden, "%s", checks), api.ExitRefused
	case errors.Is(err, context.Canceled):
		return api.Errorf(api.CodeInternal, "interrupted before the answer came: what was asked for may have been done"), exitInterrupted
	case errors.As(err, &answer):
		return answer, answer.Code.ExitStatus()
	}
	return api.AsError(err), api.ExitInternal
}
