// SPDX-License-Identifier: Apache-2.0

// Package unit asks systemd how the unit of a program of ours stands, and why the program
// does not start. It must not know requests, or what they are for.
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

// showTimeout bounds how long systemd may take to say how a unit stands.
const showTimeout = 5 * time.Second

// State is how the unit of a service stands, in the words of systemctl show.
type State struct {
	Active, Sub string
	// Result is how the last start or run ended, and ExitStatus the status or signal of its main
	// process, if it got so far.
	Result     string
	ExitStatus int
	// Restarts is how often systemd has started it again by itself.
	Restarts int
	// StatusText is what the program has said of itself last.
	StatusText string
}

// properties are those that State has.
const properties = "ActiveState,SubState,Result,ExecMainStatus,NRestarts,StatusText"

// Show asks systemd for the unit of a service.
func Show(ctx context.Context, name string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property="+properties, name).Output()
	if err != nil {
		return State{}, fmt.Errorf("ask systemd for %s: %w", name, err)
	}
	return read(string(out)), nil
}

// read reads the lines of systemctl show. What it does not know is left out.
func read(text string) State {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		values[key] = value
	}
	number := func(key string) int {
		n, err := strconv.Atoi(values[key])
		if err != nil {
			return 0 // an older systemd does not have it
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

// Ended reports whether the last start or run of the program ended in an error, and nothing has
// been started since.
func (s State) Ended() bool { return s.GivenUp() || strings.HasPrefix(s.Sub, "auto-restart") }

// Why is why it ended: in the program's own words, if it had time for them.
func (s State) Why() string {
	if why, ok := strings.CutPrefix(s.StatusText, api.UnitFailed); ok {
		return why
	}
	if s.ExitStatus != 0 {
		return fmt.Sprintf("it ended by %s (%d)", s.Result, s.ExitStatus)
	}
	return "it ended by " + s.Result
}
