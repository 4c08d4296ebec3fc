// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

func pauseFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "pause-all", Usage: "for a volume with several attachments: save its guests to disk, move it, and restore the guests"},
		&cli.BoolFlag{Name: "live-shared", Usage: "for a volume with several attachments: move it while its guests write, and pause the guests once, at the end"},
		maxPauseFlag(),
		&cli.BoolFlag{Name: "throttle-writers", Usage: "with --live-shared: throttle the guests' writes if they are faster than the copy; without this flag such a move is cancelled"},
		&cli.BoolFlag{Name: flagYes, Usage: "do not ask before the guests are paused (--pause-all, --live-shared) or a file at --to-path is overwritten"},
	}
}

func maxPauseFlag() cli.Flag {
	return &cli.StringFlag{Name: "max-pause", DefaultText: "30s", Usage: "with --live-shared: the longest `TIME` that the guests may be paused, for example 30s"}
}

func readLive(c *cli.Context, target *api.MigrationTarget) error {
	if !c.Bool("live-shared") {
		if c.IsSet("max-pause") {
			return cmdline.Usagef("%s--max-pause goes with --live-shared only", cmdline.Prefix(c))
		}
		if c.Bool("throttle-writers") {
			return cmdline.Usagef("%s--throttle-writers goes with --live-shared only", cmdline.Prefix(c))
		}
		return nil
	}
	switch {
	case c.Bool("pause-all"):
		return cmdline.Usagef("%s--live-shared and --pause-all exclude each other: give one", cmdline.Prefix(c))
	case target.ExternalCopy:
		return cmdline.Usagef("%s--live-shared and --external-copy exclude each other: another tool does not see the guests' writes", cmdline.Prefix(c))
	case target.Method != "" && target.Method != api.MethodAuto:
		return cmdline.Usagef("%s--live-shared has a method of its own: leave --method out", cmdline.Prefix(c))
	}
	target.Method, target.ThrottleWriters = api.MethodLive, c.Bool("throttle-writers")
	if !c.IsSet("max-pause") {
		return nil
	}
	text := c.String("max-pause")
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > api.MaxLivePause || d%time.Second != 0 {
		return cmdline.Usagef("%s--max-pause %q is not a time: write whole seconds or minutes, for example 30s or 2m, at most 1h", cmdline.Prefix(c), text)
	}
	target.MaxPauseSeconds = int64(d / time.Second)
	return nil
}

// confirmPause prints the expected cost of a move that pauses guests. Without --yes it asks the
// user to agree.
func confirmPause(c *cli.Context, s *session.Session, target api.MigrationTarget) error {
	switch {
	case target.Method == api.MethodLive:
	case target.ExternalCopy:
		return cmdline.Usagef("%s--pause-all and --external-copy exclude each other: the guests would be paused until the other tool has made the copy", cmdline.Prefix(c))
	case target.Method != "" && target.Method != "auto":
		return cmdline.Usagef("%s--pause-all has a method of its own: leave --method out", cmdline.Prefix(c))
	}
	e, _, err := session.Ask(c.Context, s, routes.EstimateMigration, target, c.Args().First())
	if err != nil {
		return err
	}
	agreed := c.Bool(flagYes)
	if agreed && s.JSON { // stderr must be one JSON document of an error, or empty
		return nil
	}
	for _, line := range estimateLines(*e, target) {
		s.Say("%s", line)
	}
	if agreed {
		return nil
	}
	if target.Method == api.MethodLive {
		return confirm(c, s, "Move the volume, and save these guests at the end?", "--live-shared pauses guests for a moment: give --yes where there is no terminal")
	}
	return confirm(c, s, "Save these guests and move the volume?", "--pause-all stops guests: give --yes where there is no terminal")
}

func estimateLines(e api.PauseEstimate, target api.MigrationTarget) []string {
	guests := humanize.Count(len(e.Instances), "guest")
	first := fmt.Sprintf("%s will be paused for about %s, while %s are copied:", guests, render.Seconds(e.DowntimeSeconds), humanize.Bytes(e.CopyBytes))
	if target.Method == api.MethodLive {
		first = fmt.Sprintf("%s will write while %s are copied, and then be paused for about %s, while their RAM is saved and restored:",
			guests, humanize.Bytes(e.CopyBytes), render.Seconds(e.DowntimeSeconds))
	}
	lines := []string{first}
	room := map[string]int64{}
	for _, g := range e.Instances {
		if _, seen := room[g.Host]; !seen {
			room[g.Host] = g.FreeBytes
		}
		room[g.Host] -= g.MemoryBytes
		line := fmt.Sprintf("  %s on %s (%s): %s of RAM", g.InstanceName, g.Host, g.State, humanize.Bytes(g.MemoryBytes))
		if g.SavedInMemory {
			line += ", saved to the host's memory: lost if the host goes down during the move"
		}
		lines = append(lines, line)
	}
	if e.DstFreeBytes != nil {
		line := fmt.Sprintf("The volume takes up to %s of %s free in pool %s.", humanize.Bytes(e.CopyBytes), humanize.Bytes(*e.DstFreeBytes), target.ToPool)
		if e.CopyBytes > *e.DstFreeBytes {
			line += " IT MAY NOT FIT."
		}
		lines = append(lines, line)
	}
	for _, g := range e.Instances {
		if left, unsaid := room[g.Host]; unsaid && left < 0 {
			lines = append(lines, fmt.Sprintf("Host %s may lack %s for the RAM of its guests.", g.Host, humanize.Bytes(-left)))
		}
		delete(room, g.Host)
	}
	if target.Method == api.MethodLive {
		lines = append(lines, "A new destination file gets its space as data is written, even if the source has all of its space allocated.")
	}
	return lines
}

const flagDiscard = "discard-memory"

func discardFlags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{
		Name: flagDiscard, Usage: "for a move with --pause-all: discard the memory of guests that could not be restored; these guests are then stopped, as after a power cut",
	}}
}

func endWithoutMemory(c *cli.Context, s *session.Session, end routes.Route[api.PauseEnd, api.Migration]) error {
	return ofMove(c.Context, s, c.Args().First(), func(ref string) error {
		return runMigration(c.Context, s, end, api.PauseEnd{DiscardMemory: true}, ref)
	})
}
