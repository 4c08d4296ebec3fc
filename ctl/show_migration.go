// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func migrationList(c *cli.Context, s *session) error {
	route, empty := routes.ListMigrations, "No migration is under way; --all lists those that are over."
	if c.Bool("all") || api.MigrationState(c.String("status")).Final() {
		route, empty = route.With("all", "1"), "No migration yet."
	}
	migrations, a, err := list(c.Context, s, route)
	if err != nil {
		return err
	}
	var instances map[string]string
	if c.IsSet("instance") {
		instances = namesAnyway(c.Context, s, "instances")
	}
	migrations, a, err = only(migrations, a, "migrations", func(m api.Migration) bool {
		return fits(c, "volume", m.VolumeID, m.VolumeName) && fits(c, "instance", m.InstanceID, instances[m.InstanceID]) &&
			fits(c, "host", m.Host) && fits(c, "pool", m.Src.Pool, m.Dst.Pool) && fits(c, "status", string(m.State))
	})
	if err != nil {
		return err
	}
	t := render.Table{Header: []string{"ID", "VOLUME", "STATE", "PHASE", "DONE", "RATE", "FROM", "TO", "STARTED"}}
	ids := make([]string, 0, len(migrations))
	for i := range migrations {
		m := &migrations[i]
		ids = append(ids, m.ID)
		phase, rate := m.Phase, ""
		if m.State.Final() {
			phase = ""
		} else if m.RateBytesPerSecond > 0 {
			rate = render.Rate(m.RateBytesPerSecond)
		}
		t.Add(m.ID, render.VolumeName(m), string(m.State), phase, render.Percent(m), rate, render.Location(m.Src), render.Location(m.Dst), ago(m.StartedAt, s.now))
	}
	return s.printList(a, ids, &t, orNoMatch(c, "migration", empty, "volume", "instance", "host", "pool", "status"))
}

func migrationShow(c *cli.Context, s *session) error {
	m, a, err := show(c.Context, s, routes.ShowMigration, c.Args().First())
	if err != nil {
		return err
	}
	return s.printRecord(a, m.ID, migrationRecord(m, names(c.Context, s, "instances")))
}

func migrationRecord(m *api.Migration, instances map[string]string) *render.Record {
	var r render.Record
	r.Add("id", m.ID)
	r.Add("volume", named(map[string]string{m.VolumeID: m.VolumeName}, m.VolumeID))
	r.Add("instance", named(instances, m.InstanceID))
	r.Add("host", m.Host)
	r.Add("state", string(m.State))
	r.Add("phase", m.Phase)
	if m.Error != nil {
		r.Add("error", fmt.Sprintf("%s (%s)", m.Error.Message, m.Error.Code))
	}
	r.AddIf("note", m.Remark)
	r.Add("method", m.Method)
	r.AddIf("source attachment", m.SrcAttachmentID)
	addLocation(&r, "source ", m.Src)
	r.AddIf("destination attachment", m.DstAttachmentID)
	addLocation(&r, "destination ", m.Dst)
	r.Add("copied", fmt.Sprintf("%s of %s, %s", render.Percent(m), api.Bytes(m.BytesTotal), render.Rate(m.RateBytesPerSecond)))
	r.Add("bandwidth", atMost(m.BandwidthBytesPerSecond))
	r.Add("overlay", api.ExactBytes(m.OverlayBytes))
	r.AddIf("GUEST PAUSED", m.GuestPaused)
	r.Add("verify", m.Verify)
	r.Add("external copy", render.YesNo(m.ExternalCopy))
	r.Add("delete source", render.YesNo(m.DeleteSource))
	r.Add("stall at start", stallOrDash(m.StallMS.Start))
	r.Add("stall at switch", stallOrDash(m.StallMS.Switch))
	r.Add("exposed", render.Seconds(m.ExposedSeconds))
	r.Add("started", timeOrDash(m.StartedAt))
	r.Add("finished", timeOrDash(m.FinishedAt))
	return &r
}

func stallOrDash(ms *float64) string {
	if ms == nil {
		return ""
	}
	return render.Stall(ms)
}

// atMost is a cap on the rate in words.
func atMost(rate int64) string {
	if rate == 0 {
		return "no limit"
	}
	return "at most " + render.Rate(rate)
}

func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return render.Ago(*t, now)
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return ""
	}
	return render.Time(*t)
}

// migrationWatch follows a migration, whoever works on it.
func migrationWatch(c *cli.Context, s *session) error {
	m, _, err := show(c.Context, s, routes.ShowMigration, c.Args().First())
	if err != nil {
		return err
	}
	return s.watch(c.Context, m)
}

// watch follows a migration until it stands, and tells how.
func (s *session) watch(ctx context.Context, m *api.Migration) (err error) {
	display := s.newDisplay()
	display.migration(m)
	if !stands(m) {
		f := follower{
			open: func(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
				return s.stream(ctx, routes.FollowMigration.With("since", strconv.FormatInt(since, 10)).PathOf(m.ID))
			},
			ended: func(ctx context.Context) (bool, error) {
				now, _, err := show(ctx, s, routes.ShowMigration, m.ID)
				return err == nil && stands(now), err
			},
			lost: display.lost,
		}
		err = f.run(ctx, 0, func(e api.Event) bool {
			display.event(e)
			return e.Migration == nil || !stands(e.Migration)
		})
	}
	display.close()
	if err != nil {
		return s.notFollowed(err, work{migration: m}.advice())
	}
	return s.endWatch(ctx, display, m.ID)
}

// stands says whether nothing more happens to a migration until somebody asks
// for something: it is over, or its last operation went wrong.
func stands(m *api.Migration) bool {
	switch m.State {
	case api.MigrationNeedsOperator, api.MigrationOrphaned:
		return true
	case api.MigrationStarted, api.MigrationCopied:
		return m.Error != nil
	default:
		return m.State.Final()
	}
}

// endWatch tells how a migration stands that was watched.
func (s *session) endWatch(ctx context.Context, d *display, id string) error {
	m, a, err := showAtLast(ctx, s, routes.ShowMigration, id)
	if err != nil {
		return err
	}
	d.ended(m)
	failed := &advisedError{err: m.Error, exit: api.ExitOpFailed, advice: standing(m)}
	if failed.err == nil {
		failed.err = api.Errorf(api.CodeInternal, "migration %s is in state %s and gives no reason", m.ID, m.State)
	}
	switch {
	case m.State == api.MigrationCompleted, m.State == api.MigrationCancelled && m.Error == nil:
		if s.progress == progressJSON {
			return nil
		}
		return s.printResult(a, m.ID, outcome(m)...)
	case m.State == api.MigrationNeedsOperator, m.State == api.MigrationOrphaned:
		failed.exit = api.ExitNeedsOperator
	}
	return failed
}
