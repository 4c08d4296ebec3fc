// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// CodeUnreachable marks the error of a request without an answer. The user sees another code, from
// the documented list.
const CodeUnreachable api.Code = "unreachable"

func (s *Session) explainUnreachable(ctx context.Context, err error) error {
	if failure := startFailure(ctx); failure != nil {
		return failure
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Code != CodeUnreachable {
		return err
	}
	if s.ShowUnit != nil && ctx.Err() == nil {
		if now, err := s.ShowUnit(ctx, s.unit()); err == nil && now.GivenUp() {
			return s.notStarted(now)
		}
	}
	said, program := *e, s.program()
	said.Code = api.CodeHypervisorUnavailable
	if program == registryProgram {
		said.Code = api.CodeRegistryUnavailable
	}
	advice := "Start " + program + ", or name another socket with --socket or VOLFERRY_SOCKET; '" + shell.Line("systemctl", "status", program) +
		"' shows why it does not run, and '" + program + " check-config' checks its configuration."
	if OverTCP(s.Client.Target()) {
		advice = ""
	}
	return &AdvisedError{Err: &said, Exit: api.ExitUnavailable, Advice: advice}
}

func (s *Session) answer() string { return "an answer from " + s.Client.Target() }

// whyNoAnswer returns the commands that show why there is no answer, to end a line, or "" for
// another machine.
func (s *Session) whyNoAnswer() string {
	if OverTCP(s.Client.Target()) {
		return ""
	}
	return "; if no answer comes, '" + shell.Line("systemctl", "status", s.program()) + "' or '" + s.program() + " check-config' shows why"
}
