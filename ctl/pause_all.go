// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// pauseFlags are those of a move with all guests paused.
func pauseFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "pause-all", Usage: "save its guests to disk, move it, and wake them: for several attachments"},
		&cli.BoolFlag{Name: "yes", Usage: "with --pause-all: do not ask whether that may be"},
	}
}

// agreeToPause shows what a move with all guests paused is expected to cost, and asks
// for it unless --yes was given.
func (s *session) agreeToPause(c *cli.Context, target api.MigrationTarget) error {
	switch {
	case target.ExternalCopy:
		return usagef("%s--pause-all and --external-copy exclude each other: the guests would stand still until somebody has made the copy", prefix(c))
	case target.Method != "" && target.Method != "auto":
		return usagef("%s--pause-all has a method of its own: leave --method out", prefix(c))
	}
	a, err := s.call(c.Context, routes.EstimateMigration.Method, routes.EstimateMigration.PathOf(c.Args().First()), routes.EstimateMigration.Noun, target)
	if err != nil {
		return err
	}
	var e api.PauseEstimate
	if err := a.decode("estimate", &e); err != nil {
		return err
	}
	s.showEstimate(e)
	if c.Bool("yes") {
		return nil
	}
	return s.agree(c, "Save these guests and move the volume?", "--pause-all stops guests: give --yes where nobody can be asked")
}

// agree asks a question that is to be answered with yes before anything is done.
// Unasked is what is said where there is nobody to ask.
func (s *session) agree(c *cli.Context, question, unasked string) error {
	in, ok := c.App.Reader.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usagef("%s%s; nothing was done", prefix(c), unasked)
	}
	fmt.Fprint(s.stderr, question+" [y/N] ")
	line, err := bufio.NewReader(in).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
		return &advisedError{err: api.Errorf(api.CodeInvalidArgument, "you did not agree; nothing was done"), exit: api.ExitRefused}
	}
	return nil
}

// showEstimate says who stands still, for how long, and what a host lacks for it.
func (s *session) showEstimate(e api.PauseEstimate) {
	s.say("%s will stand still for about %s, while %s are copied:", api.Count(len(e.Instances), "guest"), render.Seconds(e.DowntimeSeconds), api.Bytes(e.CopyBytes))
	room := map[string]int64{}
	for _, g := range e.Instances {
		if _, seen := room[g.Host]; !seen {
			room[g.Host] = g.FreeBytes
		}
		room[g.Host] -= g.MemoryBytes
		s.say("  %s on %s (%s): %s of RAM", g.InstanceName, g.Host, g.State, api.Bytes(g.MemoryBytes))
	}
	for _, g := range e.Instances {
		if left, unsaid := room[g.Host]; unsaid && left < 0 {
			s.say("Host %s may lack %s of disk for the RAM of its guests.", g.Host, api.Bytes(-left))
		}
		delete(room, g.Host)
	}
}

// followPaused follows a move that the registry makes, which has no op of a host.
func (s *session) followPaused(ctx context.Context, a answer) error {
	m := &api.Migration{}
	if err := a.decode("migration", m); err != nil {
		return err
	}
	switch {
	case m.Method != methodSave:
		return s.printMigration(a)
	case s.noWait && s.json:
		return render.JSON(s.stdout, a.members)
	case s.noWait:
		s.say("%s", work{migration: m}.advice())
		return s.printLines(m.ID)
	}
	return s.watch(ctx, m)
}

// flagDiscard gives up the memory of guests that may not be restored from it any more.
const flagDiscard = "discard-memory"

func discardFlags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{
		Name: flagDiscard, Usage: "of a move with --pause-all: give up the memory of the guests that could not be restored; they are then stopped, as after a power cut",
	}}
}

// discardMemory ends a move with all guests paused without the memory of those guests
// that could not be restored.
func (s *session) discardMemory(c *cli.Context, end routes.Route[api.PauseEnd, api.Migration]) error {
	return migrate(c.Context, s, end, api.PauseEnd{DiscardMemory: true}, c.Args().First())
}
