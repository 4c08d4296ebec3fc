// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// pauseFlags are the flags of a move with all guests paused.
func pauseFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "pause-all", Usage: "save its guests to disk, move it, and restore them: for several attachments"},
		&cli.BoolFlag{Name: "yes", Usage: "with --pause-all: do not ask first"},
	}
}

// confirmPause prints what a move with all guests paused is expected to cost, and asks the
// user to agree unless --yes was given.
func confirmPause(c *cli.Context, s *session.Session, target api.MigrationTarget) error {
	switch {
	case target.ExternalCopy:
		return cmdline.Usagef("%s--pause-all and --external-copy exclude each other: the guests would stand still until somebody has made the copy", cmdline.Prefix(c))
	case target.Method != "" && target.Method != "auto":
		return cmdline.Usagef("%s--pause-all has a method of its own: leave --method out", cmdline.Prefix(c))
	}
	e, _, err := session.Ask(c.Context, s, routes.EstimateMigration, target, c.Args().First())
	if err != nil {
		return err
	}
	for _, line := range estimateLines(*e) {
		s.Say("%s", line)
	}
	if c.Bool("yes") {
		return nil
	}
	return confirm(c, s, "Save these guests and move the volume?", "--pause-all stops guests: give --yes where nobody can be asked")
}

// confirm asks the user a question before anything is done; only yes is not an error.
// noTerminal is the error if there is nobody to ask.
func confirm(c *cli.Context, s *session.Session, question, noTerminal string) error {
	in, ok := c.App.Reader.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return cmdline.Usagef("%s%s; nothing was done", cmdline.Prefix(c), noTerminal)
	}
	fmt.Fprint(s.Stderr, question+" [y/N] ")
	line, err := bufio.NewReader(in).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
		return &session.AdvisedError{Err: api.Errorf(api.CodeInvalidArgument, "you did not agree; nothing was done"), Exit: api.ExitRefused}
	}
	return nil
}

// estimateLines say which guests stand still, for how long, and which hosts lack disk space
// for their memory.
func estimateLines(e api.PauseEstimate) []string {
	lines := []string{fmt.Sprintf("%s will stand still for about %s, while %s are copied:", api.Count(len(e.Instances), "guest"), render.Seconds(e.DowntimeSeconds), api.Bytes(e.CopyBytes))}
	room := map[string]int64{}
	for _, g := range e.Instances {
		if _, seen := room[g.Host]; !seen {
			room[g.Host] = g.FreeBytes
		}
		room[g.Host] -= g.MemoryBytes
		lines = append(lines, fmt.Sprintf("  %s on %s (%s): %s of RAM", g.InstanceName, g.Host, g.State, api.Bytes(g.MemoryBytes)))
	}
	for _, g := range e.Instances {
		if left, unsaid := room[g.Host]; unsaid && left < 0 {
			lines = append(lines, fmt.Sprintf("Host %s may lack %s of disk for the RAM of its guests.", g.Host, api.Bytes(-left)))
		}
		delete(room, g.Host)
	}
	return lines
}

// flagDiscard is the flag that gives up the saved memory of guests.
const flagDiscard = "discard-memory"

func discardFlags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{
		Name: flagDiscard, Usage: "for a move with --pause-all: give up the memory of guests that could not be restored; they are then stopped, as after a power cut",
	}}
}

// endWithoutMemory ends a move with all guests paused, and gives up the memory of the guests
// that could not be restored.
func endWithoutMemory(c *cli.Context, s *session.Session, end routes.Route[api.PauseEnd, api.Migration]) error {
	return runMigration(c.Context, s, end, api.PauseEnd{DiscardMemory: true}, c.Args().First())
}
