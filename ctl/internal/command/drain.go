// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

func poolDrainCommand() *cli.Command {
	return &cli.Command{
		Name: "drain", Usage: "move every volume of a pool to another pool", ArgsUsage: "POOL", Action: withSession(poolDrain),
		UsageText: session.Program + " pool drain POOL --to POOL [--parallel N] [--bandwidth RATE] [--pace HOW] [--verify HOW] [--delete-source] [--live-shared [--max-pause T] [--throttle-writers] | --pause-all] [--checkpoints drop] [--dry-run]",
		Description: "The drain moves the volumes on every host, also volumes of running and of stopped instances. It\n" +
			"skips a volume that cannot be moved, and lists it with the reason. It also lists every other use\n" +
			"of the pool: volumes outside the pool with an image or a base image below its path, and files\n" +
			"there that domains name, adopted or not, for example the image of a CD-ROM. The registry leads\n" +
			"the drain: it continues without this command, and after a restart. 'volferryctl drain' follows,\n" +
			"pauses and stops it.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "move them into `POOL`"},
			&cli.IntFlag{Name: "parallel", Value: 1, DefaultText: "1", Usage: "move `N` volumes at once"},
			&cli.StringFlag{Name: "bandwidth", Usage: "limit the copy of each volume, and the read that verifies it, to `RATE`, for example 100MiB/s; 0 for no limit"},
			paceFlag(),
			verifyFlag(),
			&cli.BoolFlag{Name: "delete-source", Usage: "delete the source of each move after the copy is verified; a mirror is verified only with --verify full"},
			&cli.BoolFlag{Name: "live-shared", Usage: "also move volumes of several instances, while their guests write; the guests are paused once, at the end of each move"},
			maxPauseFlag(),
			&cli.BoolFlag{Name: "throttle-writers", Usage: "with --live-shared: throttle the guests' writes if they are faster than the copy"},
			&cli.BoolFlag{Name: "pause-all", Usage: "also move volumes of several instances; their guests are saved to disk, and restored after the move"},
			checkpointsFlag(),
			dryRunFlag(),
		},
	}
}

func drainCommand() *cli.Command {
	return &cli.Command{
		Name:  "drain",
		Usage: "follow, pause and stop the drains of pools",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list drains", Action: withSession(drainList),
				Flags: append(filterFlags("pool"), filterStatus([]string{api.DrainRunning, api.DrainPaused, api.DrainStopped, api.DrainDone})),
			},
			{Name: "show", Usage: "show one drain with its volumes", ArgsUsage: "DRAIN", Action: withSession(drainShow)},
			{
				Name: "watch", Usage: "follow a drain until it is over", ArgsUsage: "DRAIN", Action: withSession(drainWatch),
				Description: "Ctrl-C ends this command, not the drain. The exit status is 6 if the drain has ended and has not\n" +
					"moved every volume, or if the pool is still needed.",
			},
			drainVerb("pause", routes.PauseDrain, "start no more moves; running moves continue", "Paused drain %s: the running moves continue to their end."),
			drainVerb("resume", routes.ResumeDrain, "resume a paused drain", "Resumed drain %s."),
			drainVerb("stop", routes.StopDrain, "end a drain; running moves continue to their end", "Stopped drain %s: the running moves continue to their end."),
		},
	}
}

func drainVerb(verb string, route routes.Route[routes.None, api.Drain], usage, done string) *cli.Command {
	return &cli.Command{
		Name: verb, Usage: usage, ArgsUsage: "DRAIN",
		Action: withSession(func(c *cli.Context, s *session.Session) error {
			d, resp, err := session.Change(c.Context, s, route, routes.None{}, c.Args().First())
			if err != nil {
				return err
			}
			return s.PrintResult(resp, d.ID, fmt.Sprintf(done, d.ID))
		}),
	}
}

func poolDrain(c *cli.Context, s *session.Session) error {
	in := api.PoolDrain{ToPool: c.String("to"), Parallel: c.Int("parallel"), Pace: c.String("pace"), Verify: c.String("verify"), DeleteSource: c.Bool("delete-source"), Checkpoints: c.String("checkpoints")}
	switch {
	case in.ToPool == "":
		return cmdline.Usagef("pool drain: --to is missing: give the destination, --to POOL")
	case in.ToPool == c.Args().First():
		return cmdline.Usagef("pool drain: --to names the pool that is to be drained: give another pool")
	case in.Parallel < 1:
		return cmdline.Usagef("pool drain: --parallel %d is below 1", in.Parallel)
	}
	if err := checkVerify(c); err != nil {
		return err
	}
	if c.IsSet("bandwidth") {
		var err error
		if in.BandwidthBytesPerSecond, err = parseRate(c.String("bandwidth")); err != nil {
			return err
		}
	}
	var live api.MigrationTarget
	if err := readLive(c, &live); err != nil {
		return err
	}
	in.LiveShared, in.MaxPauseSeconds, in.ThrottleWriters = live.Method == api.MethodLive, live.MaxPauseSeconds, live.ThrottleWriters
	in.PauseAll = c.Bool("pause-all")
	if c.Bool("dry-run") {
		return showDrainPlan(c.Context, s, c.Args().First(), in)
	}
	d, resp, err := session.Change(c.Context, s, routes.DrainPool, in, c.Args().First())
	if err != nil {
		return err
	}
	if s.NoWait {
		s.Say("%s", drainAdvice(d.ID))
		return s.PrintResult(resp, d.ID, d.ID)
	}
	return followDrain(c.Context, s, d.ID)
}

func drainAdvice(id string) string {
	return fmt.Sprintf("Follow it: %s\nPause it:  %s\nStop it:   %s",
		shell.Line(session.Program, "drain", "watch", id), shell.Line(session.Program, "drain", "pause", id), shell.Line(session.Program, "drain", "stop", id))
}

func drainWatch(c *cli.Context, s *session.Session) error {
	return followDrain(c.Context, s, c.Args().First())
}

func followDrain(ctx context.Context, s *session.Session, id string) error {
	view := drainView{s: s, display: s.NewDisplay(), shown: map[string]string{}}
	f := session.Follower{
		Open: session.Events(s, routes.FollowDrain, id),
		Ended: func(ctx context.Context) (bool, error) {
			d, _, err := session.Show(ctx, s, routes.ShowDrain, id)
			return err == nil && drainFinished(d.State), err
		},
		OnOutage: view.display.Outage,
	}
	err := f.Run(ctx, 0, func(e api.Event) bool {
		if e.Drain == nil {
			return true
		}
		view.update(e.Drain)
		return !drainFinished(e.Drain.State)
	})
	switch {
	case errors.Is(err, context.Canceled):
		return &session.DetachedError{Advice: "Detached; the drain continues.\n" + drainAdvice(id)}
	case errors.Is(err, session.ErrConnectionLost):
		return &session.AdvisedError{Err: api.AsError(err), Exit: api.ExitUnavailable, Advice: drainAdvice(id)}
	case err != nil:
		return err
	}
	return endDrain(ctx, s, id, &view)
}

func drainFinished(state string) bool { return state == api.DrainDone || state == api.DrainStopped }

func endDrain(ctx context.Context, s *session.Session, id string, view *drainView) error {
	d, resp, err := session.ShowRetrying(ctx, s, routes.ShowDrain, id)
	if err != nil {
		return err
	}
	view.update(d)
	line, stays := drainResult(d)
	if s.Progress != session.ProgressJSON {
		lines := append([]string{line}, (&poolNeeds{uses: d.Uses}).lines()...)
		if err := s.PrintResult(resp, d.ID, append(lines, leftInPool(ctx, s, d)...)...); err != nil {
			return err
		}
	}
	if stays == "" || d.State == api.DrainStopped {
		return nil
	}
	return &session.AdvisedError{
		Err: api.Errorf(api.CodeConflict, "%s", stays), Exit: api.ExitOpFailed,
		Advice: "See why: " + shell.Line(session.Program, "drain", "show", d.ID),
	}
}

type drainView struct {
	s       *session.Session
	display *session.Display
	// shown has the last line about each volume, by its id.
	shown map[string]string
}

func (v *drainView) update(d *api.Drain) {
	if v.display.JSONLine(drainLine{SchemaVersion: api.SchemaVersion, Drain: d}) || !v.display.Draws() {
		return
	}
	over := 0
	for _, vol := range d.Volumes {
		if vol.State != api.DrainVolumePending && vol.State != api.DrainVolumeMoving && !vol.Outside() {
			over++
		}
	}
	for _, vol := range d.Volumes {
		line := fmt.Sprintf("%s: %s", vol.VolumeName, drainVolumeState(&vol))
		if vol.Error != nil {
			line += ": " + vol.Error.Message
		}
		if v.shown[vol.VolumeID] == line || vol.State == api.DrainVolumePending {
			continue
		}
		v.shown[vol.VolumeID] = line
		v.s.Say("%s  (%d of %s, %s of %s)", line, over, humanize.Count(inDrain(d), "volume"), humanize.Bytes(d.BytesDone), humanize.Bytes(d.BytesTotal))
	}
}

type drainLine struct {
	SchemaVersion int        `json:"schema_version"`
	Drain         *api.Drain `json:"drain"`
}

func drainList(c *cli.Context, s *session.Session) error {
	drains, resp, err := session.List(c.Context, s, routes.ListDrains)
	if err != nil {
		return err
	}
	drains, resp, err = filterList(drains, resp, "drains", func(d api.Drain) bool {
		return matches(c, "pool", d.Pool, d.ToPool) && matches(c, "status", d.State)
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(drains, func(a, b api.Drain) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(a.Pool, b.Pool))
	})
	t := render.Table{Header: []string{"ID", "POOL", "TO", "STATE", "VOLUMES", "DONE", "STARTED", "NOT MOVED"}}
	ids := make([]string, 0, len(drains))
	for _, d := range drains {
		ids = append(ids, d.ID)
		t.Add(d.ID, d.Pool, d.ToPool, d.State, strconv.Itoa(inDrain(&d)),
			humanize.Bytes(d.BytesDone)+" of "+humanize.Bytes(d.BytesTotal), render.Ago(d.StartedAt, s.Now), leftBehind(d))
	}
	empty := "No pool is being drained: '" + session.Program + " pool drain POOL --to POOL' starts a drain."
	if err := s.PrintList(resp, ids, &t, emptyText(c, "drain", empty, "pool", "status")); err != nil || s.JSON || s.Quiet {
		return err
	}
	return printStoppedInDrains(s, drains)
}

func printStoppedInDrains(s *session.Session, drains []api.Drain) error {
	for _, d := range drains {
		for _, v := range d.Volumes {
			if v.State != api.DrainVolumeMoving || v.Error == nil {
				continue
			}
			if err := s.PrintLines("", "drain "+d.ID+": "+v.Error.Message); err != nil {
				return err
			}
		}
	}
	return nil
}

func drainShow(c *cli.Context, s *session.Session) error {
	d, resp, err := session.Show(c.Context, s, routes.ShowDrain, c.Args().First())
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("id", d.ID)
	r.Add("pool", d.Pool)
	r.Add("to pool", d.ToPool)
	r.Add("state", d.State)
	r.Add("parallel", strconv.Itoa(d.Parallel))
	r.Add("bandwidth", atMostEach(d.BandwidthBytesPerSecond))
	r.AddIf("pace", d.Pace)
	r.AddIf("verify", d.Verify)
	r.Add("delete source", render.YesNo(d.DeleteSource))
	r.AddIf("checkpoints", d.Checkpoints)
	r.Add("moved", humanize.Bytes(d.BytesDone)+" of "+humanize.Bytes(d.BytesTotal))
	r.Add("started", render.Time(d.StartedAt))
	r.Add("finished", timeOrDash(d.FinishedAt))
	if err := s.PrintRecord(resp, d.ID, &r); err != nil || s.JSON || s.Quiet {
		return err
	}
	if err := printDrainVolumes(s, d); err != nil {
		return err
	}
	if lines := append((&poolNeeds{uses: d.Uses}).lines(), leftInPool(c.Context, s, d)...); len(lines) > 0 {
		return s.PrintLines(append([]string{""}, lines...)...)
	}
	return nil
}

// printDrainVolumes prints under the table why some volumes stay: sentences do not fit a table.
func printDrainVolumes(s *session.Session, d *api.Drain) error {
	t := render.Table{Header: []string{"VOLUME", "HOST", "SIZE", "STATE"}}
	reasons := []string{""}
	for _, v := range d.Volumes {
		t.Add(v.VolumeName, v.Host, humanize.Bytes(v.SizeBytes), drainVolumeState(&v))
		if v.Error != nil {
			reasons = append(reasons, fmt.Sprintf("%s %s: %s", v.VolumeName, drainVolumeState(&v), v.Error.Message))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	if err := s.PrintLines(""); err != nil {
		return err
	}
	if _, err := t.Write(s.Stdout, session.TerminalWidth(s.Stdout)); err != nil || len(reasons) == 1 {
		return err
	}
	return s.PrintLines(reasons...)
}

// leftBehind returns why the first unmoved volume stays, and the number of other such volumes.
func leftBehind(d api.Drain) string {
	line, more := "", 0
	for _, v := range d.Volumes {
		switch {
		case v.Error == nil, v.State == api.DrainVolumeMoving: // the lines under the list have it
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
