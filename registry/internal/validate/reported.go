// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/printable"
)

// ReportedError returns a host's error with printable texts and without the host's commands, for
// users: the registry's clients print commands to copy, and a compromised host must not choose
// them.
func ReportedError(e *api.Error) *api.Error {
	if e == nil {
		return nil
	}
	out := &api.Error{Code: e.Code, Message: printable.Text(e.Message), Details: printable.Details(e.Details)}
	delete(out.Details, api.DetailCure)
	return out
}

// ReportedMigration returns a host's migration for users: its texts are bounded and printable, and
// it has no commands of the host.
func ReportedMigration(m api.Migration) api.Migration {
	m.Error = ReportedError(m.Error)
	for _, text := range []*string{&m.Remark, &m.GuestPaused, &m.GuestNotResumed, &m.GuestThrottled, &m.DstAfter} {
		*text = ClipTo(MaxErrorMessage, *text)
	}
	if p := m.ChainProblem; p != nil {
		m.ChainProblem = &api.ChainProblem{Message: ClipTo(MaxErrorMessage, p.Message), Guarded: p.Guarded}
	}
	return m
}
