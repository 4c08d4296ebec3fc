// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func poolDrainCommand() *cli.Command {
	return &cli.Command{
		Name: "drain", Usage: "move every volume of a pool to another pool", ArgsUsage: "POOL", Action: withSession(poolDrain),
		UsageText: programName + " pool drain POOL --to POOL [--parallel N] [--bandwidth RATE] [--delete-source]",
		Description: "On every host, whether instances run, are stopped, or there is none. What cannot be moved is\n" +
			"skipped, and listed with the reason. The drain is the registry's: it goes on without this\n" +
			"command, and after a restart. 'volferryctl drain' follows, pauses and stops it.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "move them into `POOL`"},
			&cli.IntFlag{Name: "parallel", Value: 1, DefaultText: "1", Usage: "move `N` volumes at once"},
			&cli.StringFlag{Name: "bandwidth", Usage: "copy each no faster than `RATE`, for example 100MiB/s"},
			&cli.BoolFlag{Name: "delete-source", Usage: "delete what a volume was moved from, once the copy is verified"},
		},
	}
}

func drainCommand() *cli.Command {
	return &cli.Command{
		Name:  "drain",
		Usage: "pools that are being emptied: follow, pause, stop",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list drains", Action: withSession(drainList),
				Flags: append(filterFlags("pool"), filterStatus([]string{api.DrainRunning, api.DrainPaused, api.DrainStopped, api.DrainDone})),
			},
			{Name: "show", Usage: "show one drain with its volumes", ArgsUsage: "DRAIN", Action: withSession(drainShow)},
			{
				Name: "watch", Usage: "follow a drain until it is over", ArgsUsage: "DRAIN", Action: withSession(drainWatch),
				Description: "Ctrl-C stops the watching, not the drain. The exit status is 6 if a drain that ran to its end\n" +
					"left a volume behind.",
			},
			drainVerb("pause", routes.PauseDrain, "begin no more moves; those that run go on", "Paused drain %s: the moves that run go on to their end."),
			drainVerb("resume", routes.ResumeDrain, "go on with a drain that was paused", "Drain %s goes on."),
			drainVerb("stop", routes.StopDrain, "end a drain; moves that run go on to their end", "Stopped drain %s: the moves that run go on to their end."),
		},
	}
}

func drainVerb(verb string, route routes.Route[routes.None, api.Drain], usage, done string) *cli.Command {
	return &cli.Command{
		Name: verb, Usage: usage, ArgsUsage: "DRAIN",
		Action: withSession(func(c *cli.Context, s *session) error {
			d, a, err := change(c.Context, s, route, routes.None{}, c.Args().First())
			if err != nil {
				return err
			}
			return s.printResult(a, d.ID, fmt.Sprintf(done, d.ID))
		}),
	}
}

func poolDrain(c *cli.Context, s *session) error {
	in := api.PoolDrain{ToPool: c.String("to"), Parallel: c.Int("parallel"), DeleteSource: c.Bool("delete-source")}
	switch {
	case in.ToPool == "":
		return usagef("pool drain: say where to: --to POOL")
	case in.ToPool == c.Args().First():
		return usagef("pool drain: --to names the pool that shall be emptied: give another one")
	case in.Parallel < 1:
		return usagef("pool drain: --parallel %d is below 1", in.Parallel)
	}
	if c.IsSet("bandwidth") {
		var err error
		if in.BandwidthBytesPerSecond, err = parseRate(c.String("bandwidth")); err != nil {
			return err
		}
	}
	d, a, err := change(c.Context, s, routes.DrainPool, in, c.Args().First())
	if err != nil {
		return err
	}
	if s.noWait {
		s.say("%s", drainAdvice(d.ID))
		return s.printResult(a, d.ID, d.ID)
	}
	return s.followDrain(c.Context, d.ID)
}

func drainAdvice(id string) string {
	return fmt.Sprintf("Follow it: %[1]s drain watch %[2]s\nPause it:  %[1]s drain pause %[2]s\nStop it:   %[1]s drain stop %[2]s", programName, id)
}

func drainWatch(c *cli.Context, s *session) error { return s.followDrain(c.Context, c.Args().First()) }

// followDrain tells what becomes of each volume, and at the end of all.
func (s *session) followDrain(ctx context.Context, id string) error {
	view := drainView{s: s, display: s.newDisplay(), states: map[string]string{}}
	f := follower{
		open: func(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
			return s.stream(ctx, routes.FollowDrain.With("since", strconv.FormatInt(since, 10)).PathOf(id))
		},
		ended: func(ctx context.Context) (bool, error) {
			d, _, err := show(ctx, s, routes.ShowDrain, id)
			return err == nil && drainOver(d.State), err
		},
		lost: view.display.lost,
	}
	err := f.run(ctx, 0, func(e api.Event) bool {
		if e.Drain == nil {
			return true
		}
		view.update(e.Drain)
		return !drainOver(e.Drain.State)
	})
	switch {
	case errors.Is(err, context.Canceled):
		return &detachedError{advice: "Detached; the drain goes on.\n" + drainAdvice(id)}
	case errors.Is(err, errLost):
		return &advisedError{err: api.AsError(err), exit: api.ExitUnavailable, advice: drainAdvice(id)}
	case err != nil:
		return err
	}
	return s.drainEnded(ctx, id, &view)
}

func drainOver(state string) bool { return state == api.DrainDone || state == api.DrainStopped }

// drainEnded shows how a drain ended; volumes that are left are an error.
func (s *session) drainEnded(ctx context.Context, id string, view *drainView) error {
	d, a, err := showAtLast(ctx, s, routes.ShowDrain, id)
	if err != nil {
		return err
	}
	view.update(d)
	moved, left := 0, 0
	for _, v := range d.Volumes {
		if v.State == api.DrainVolumeMoved {
			moved++
		} else {
			left++
		}
	}
	line := fmt.Sprintf("Drained pool %s to %s: %s moved, %d left.", d.Pool, d.ToPool, api.Count(moved, "volume"), left)
	if d.State == api.DrainStopped {
		line = fmt.Sprintf("The drain of pool %s was stopped: %s moved, %d left.", d.Pool, api.Count(moved, "volume"), left)
	}
	if s.progress != progressJSON {
		if err := s.printResult(a, d.ID, line); err != nil {
			return err
		}
	}
	if left == 0 || d.State == api.DrainStopped {
		return nil
	}
	return &advisedError{
		err: api.Errorf(api.CodeConflict, "pool %s is not empty: %s not moved", d.Pool, api.Count(left, "volume")), exit: api.ExitOpFailed,
		advice: fmt.Sprintf("See why: %s drain show %s", programName, d.ID),
	}
}

// drainView prints a line whenever a volume gets into another state.
type drainView struct {
	s       *session
	display *display
	states  map[string]string
}

func (v *drainView) update(d *api.Drain) {
	if v.display.jsonLine(drainLine{SchemaVersion: api.SchemaVersion, Drain: d}) || !v.display.draws() {
		return
	}
	over := 0
	for _, vol := range d.Volumes {
		if vol.State != api.DrainVolumePending && vol.State != api.DrainVolumeMoving {
			over++
		}
	}
	for _, vol := range d.Volumes {
		if v.states[vol.VolumeID] == vol.State || vol.State == api.DrainVolumePending {
			continue
		}
		v.states[vol.VolumeID] = vol.State
		line := fmt.Sprintf("%s: %s", vol.VolumeName, vol.State)
		if vol.Error != nil {
			line += ": " + vol.Error.Message
		}
		v.s.say("%s  (%d of %s, %s of %s)", line, over, api.Count(len(d.Volumes), "volume"), api.Bytes(d.BytesDone), api.Bytes(d.BytesTotal))
	}
}

// drainLine is one line of --progress json.
type drainLine struct {
	SchemaVersion int        `json:"schema_version"`
	Drain         *api.Drain `json:"drain"`
}

func drainList(c *cli.Context, s *session) error {
	drains, a, err := list(c.Context, s, routes.ListDrains)
	if err != nil {
		return err
	}
	drains, a, err = only(drains, a, "drains", func(d api.Drain) bool {
		return fits(c, "pool", d.Pool, d.ToPool) && fits(c, "status", d.State)
	})
	if err != nil {
		return err
	}
	t := render.Table{Header: []string{"ID", "POOL", "TO", "STATE", "VOLUMES", "DONE", "STARTED", "LEFT BEHIND"}}
	ids := make([]string, 0, len(drains))
	for _, d := range drains {
		ids = append(ids, d.ID)
		t.Add(d.ID, d.Pool, d.ToPool, d.State, strconv.Itoa(len(d.Volumes)),
			api.Bytes(d.BytesDone)+" of "+api.Bytes(d.BytesTotal), render.Time(d.StartedAt), leftBehind(d))
	}
	empty := "No pool is being drained: '" + programName + " pool drain POOL --to POOL' begins."
	return s.printList(a, ids, &t, orNoMatch(c, "drain", empty, "pool", "status"))
}

func drainShow(c *cli.Context, s *session) error {
	d, a, err := show(c.Context, s, routes.ShowDrain, c.Args().First())
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("id", d.ID)
	r.Add("pool", d.Pool)
	r.Add("to pool", d.ToPool)
	r.Add("state", d.State)
	r.Add("parallel", strconv.Itoa(d.Parallel))
	r.Add("bandwidth", atMost(d.BandwidthBytesPerSecond)+" each")
	r.Add("delete source", render.YesNo(d.DeleteSource))
	r.Add("moved", api.Bytes(d.BytesDone)+" of "+api.Bytes(d.BytesTotal))
	r.Add("started", render.Time(d.StartedAt))
	r.Add("finished", timeOrDash(d.FinishedAt))
	if err := s.printRecord(a, d.ID, &r); err != nil || s.json || s.quiet {
		return err
	}
	return s.printDrainVolumes(d)
}

// printDrainVolumes is the table of a drain's volumes, and under it why some of
// them stay: sentences fit no table.
func (s *session) printDrainVolumes(d *api.Drain) error {
	t := render.Table{Header: []string{"VOLUME", "HOST", "SIZE", "STATE"}}
	reasons := []string{""}
	for _, v := range d.Volumes {
		t.Add(v.VolumeName, v.Host, api.Bytes(v.SizeBytes), v.State)
		if v.Error != nil {
			reasons = append(reasons, fmt.Sprintf("%s %s: %s", v.VolumeName, v.State, v.Error.Message))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	if err := s.printLines(""); err != nil {
		return err
	}
	if _, err := t.Write(s.stdout, terminalWidth(s.stdout)); err != nil || len(reasons) == 1 {
		return err
	}
	return s.printLines(reasons...)
}

// leftBehind is why the first volume that a drain could not move stays, and of
// how many more that is true.
func leftBehind(d api.Drain) string {
	line, more := "", 0
	for _, v := range d.Volumes {
		switch {
		case v.Error == nil:
		case line == "":
			line = v.VolumeName + ": " + v.Error.Message
		default:
			more++
		}
	}
	if more > 0 {
		line += fmt.Sprintf(" (and %d more)", more)
	}
	return line
}
