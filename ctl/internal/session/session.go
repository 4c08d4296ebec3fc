// SPDX-License-Identifier: Apache-2.0

// Package session is the conversation of one command with a daemon or a registry: it sends and
// repeats requests, follows lasting work, and prints answers in the user's format.
package session

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/unit"
	"github.com/volferry/volferry/internal/client"
)

// Program is the name of volferryctl, for command lines in advice.
const Program = "volferryctl"

// The values of --progress.
const (
	ProgressAuto  = "auto"
	ProgressPlain = "plain"
	ProgressJSON  = "json"
	ProgressNone  = "none"
)

// Session is the connection of one command, and its user's output settings.
type Session struct {
	Client   *client.Client
	Stdout   io.Writer
	Stderr   io.Writer
	JSON     bool
	Quiet    bool
	NoWait   bool
	Progress string
	Now      time.Time
	// ShowUnit returns systemd's state of a unit; nil if systemd does not start the other side.
	ShowUnit   func(ctx context.Context, name string) (unit.State, error)
	staleNoted bool
}

// noteStale notifies the user, once, that the daemon answered from its cache.
func (s *Session) noteStale(resp Response) {
	var age float64
	if s.staleNoted || s.JSON || string(resp.Members["stale"]) != "true" || json.Unmarshal(resp.Members["age_seconds"], &age) != nil {
		return
	}
	s.staleNoted = true
	s.Say("The registry does not answer: this is its answer of %s ago; later changes may be missing.", render.Seconds(age))
}

// Say writes a line for the user on stderr, unless --quiet was given.
func (s *Session) Say(format string, args ...any) {
	if !s.Quiet {
		render.Line(s.Stderr, format, args...)
	}
}
