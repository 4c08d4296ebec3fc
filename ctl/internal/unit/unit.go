// SPDX-License-Identifier: Apache-2.0

// Package unit asks systemd for the state of a Volferry program's unit, and why it does not start.
package unit

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const showTimeout = 5 * time.Second

// State is a service unit's state, in the terms of systemctl show.
type State struct {
	Active, Sub string
	// Result is the result of the last start or run, ExitStatus its main process's exit status or
	// signal, if any.
	Result     string
	ExitStatus int
	// Restarts counts systemd's automatic restarts.
	Restarts   int
	StatusText string
}

const properties = "ActiveState,SubState,Result,ExecMainStatus,NRestarts,StatusText"

// Show asks systemd for a service unit's state.
func Show(ctx context.Context, name string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property="+properties, name).Output()
	if err != nil {
		return State{}, fmt.Errorf("ask systemd for %s: %w", name, err)
	}
	return read(string(out)), nil
}

func read(text string) State {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		values[key] = value
	}
	number := func(key string) int {
		n, err := strconv.Atoi(values[key])
		if err != nil {
			return 0 // an older systemd lacks it
		}
		return n
	}
	return State{
		Active: values["ActiveState"], Sub: values["SubState"], Result: values["Result"], StatusText: values["StatusText"],
		ExitStatus: number("ExecMainStatus"), Restarts: number("NRestarts"),
	}
}

// Up reports whether the program has started.
func (s State) Up() bool { return s.Active == "active" || s.Active == "reloading" }

// GivenUp reports whether systemd will not start the program again by itself.
func (s State) GivenUp() bool { return s.Active == "failed" }

// Ended reports whether the last start or run ended in an error, without a new start since.
func (s State) Ended() bool { return s.GivenUp() || strings.HasPrefix(s.Sub, "auto-restart") }

// Why returns why the program ended: its own message, if it sent one.
func (s State) Why() string {
	if why, ok := strings.CutPrefix(s.StatusText, api.UnitFailed); ok {
		return why
	}
	if s.ExitStatus != 0 {
		return fmt.Sprintf("it ended by %s (%d)", s.Result, s.ExitStatus)
	}
	return "it ended by " + s.Result
}
