// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

func migrationList(c *cli.Context, s *session.Session) error {
	route, empty := routes.ListMigrations, "No migration is under way; --all also lists finished migrations."
	if c.Bool("all") || api.MigrationState(c.String("status")).Final() {
		route, empty = route.With("all", "1"), "No migration yet."
	}
	migrations, resp, err := session.List(c.Context, s, route)
	if err != nil {
		return err
	}
	var instances map[string]string
	if c.IsSet("instance") {
		instances = session.LoadNames(c.Context, s, "instances")
	}
	migrations, resp, err = filterList(migrations, resp, "migrations", func(m api.Migration) bool {
		return matches(c, "volume", m.VolumeID, m.VolumeName) && matches(c, "instance", m.InstanceID, instances[m.InstanceID]) &&
			matches(c, "host", m.Host) && matches(c, "pool", m.Src.Pool, m.Dst.Pool) && matches(c, "status", string(m.State))
	})
	if err != nil {
		return err
	}
	if err := checkHost(c, s, len(migrations)); err != nil {
		return err
	}
	slices.SortStableFunc(migrations, func(a, b api.Migration) int {
		return cmp.Or(strings.Compare(render.VolumeName(&a), render.VolumeName(&b)), startedOf(&b).Compare(startedOf(&a)))
	})
	t := render.Table{Header: []string{"ID", "VOLUME", "STATE", "PHASE", "DONE", "RATE", "FROM", "TO", "STARTED"}}
	ids := make([]string, 0, len(migrations))
	for i := range migrations {
		m := &migrations[i]
		ids = append(ids, m.ID)
		phase, rate := m.Phase, ""
		if m.Stopped() {
			phase = "STOPPED"
		} else if m.GuestPaused != "" || m.GuestNotResumed != "" {
			phase = "GUEST PAUSED"
		} else if m.ChainProblem != nil {
			phase = "DISK CHANGED"
		} else if m.State.Final() {
			phase = ""
		} else if m.RateBytesPerSecond > 0 {
			rate = render.Rate(m.RateBytesPerSecond)
		}
		t.Add(m.ID, render.VolumeName(m), string(m.State), phase, render.Percent(m), rate, render.Location(m.Src), render.Location(m.Dst), agoOrDash(m.StartedAt, s.Now))
	}
	if err := s.PrintList(resp, ids, &t, emptyText(c, "migration", empty, "volume", "instance", "host", "pool", "status")); err != nil || s.JSON || s.Quiet {
		return err
	}
	return printStopped(s, migrations)
}

// printStopped prints reason and remedies for each migration that has stopped, has a guest that
// does not run, or a disk changed by another program.
func printStopped(s *session.Session, migrations []api.Migration) error {
	for i := range migrations {
		m := &migrations[i]
		var lines []string
		if m.Stopped() {
			again, back := m.Cures()
			lines = append(lines, "", m.StoppedLine(), "  Next:         "+again)
			if back != "" {
				lines = append(lines, "  Take it back: "+back)
			}
		}
		if m.GuestNotResumed != "" {
			lines = append(lines, "", "volume "+render.VolumeName(m)+": "+m.GuestNotResumed, "  Next:         "+m.ResumeAdvice())
		}
		if p := m.ChainProblem; p != nil {
			lines = append(lines, "", p.Message)
			if p.Cure != "" {
				lines = append(lines, "  Next:         "+p.Cure)
			}
		}
		if m.GuestPaused != "" {
			lines = append(lines, "", "volume "+render.VolumeName(m)+": "+m.GuestPaused, "  Next:         "+m.WakeAdvice())
		}
		if len(lines) == 0 {
			continue
		}
		if err := s.PrintLines(lines...); err != nil {
			return err
		}
	}
	return nil
}

func migrationShow(c *cli.Context, s *session.Session) error {
	return ofMove(c.Context, s, c.Args().First(), func(ref string) error {
		m, resp, err := session.Show(c.Context, s, routes.ShowMigration, ref)
		if err != nil {
			return err
		}
		return s.PrintRecord(resp, m.ID, migrationRecord(m, session.Names(c.Context, s, "instances")))
	})
}

func migrationRecord(m *api.Migration, instances map[string]string) *render.Record {
	var r render.Record
	r.Add("id", m.ID)
	r.Add("volume", nameWithID(map[string]string{m.VolumeID: m.VolumeName}, m.VolumeID))
	r.Add("instance", nameWithID(instances, m.InstanceID))
	r.Add("host", m.Host)
	r.Add("state", string(m.State))
	r.Add("phase", m.Phase)
	if m.Error != nil {
		r.Add("error", fmt.Sprintf("%s (%s)", m.Error.Message, m.Error.Code))
	}
	if m.Stopped() {
		r.AddIf("STOPPED", timeOrDash(m.StoppedAt))
		again, back := m.Cures()
		r.Add("next", again)
		r.AddIf("take it back", back)
	}
	r.AddIf("note", m.Remark)
	r.Add("method", m.Method)
	r.AddIf("source attachment", m.SrcAttachmentID)
	addLocation(&r, "source ", m.Src)
	r.AddIf("destination attachment", m.DstAttachmentID)
	addLocation(&r, "destination ", m.Dst)
	r.Add("copied", fmt.Sprintf("%s of %s, %s", render.Percent(m), humanize.Bytes(m.BytesTotal), render.Rate(m.RateBytesPerSecond)))
	r.Add("bandwidth", atMost(m.BandwidthBytesPerSecond))
	r.AddIf("pace", m.Pace)
	r.AddIf("pacing", m.Pacing)
	r.Add("overlay", humanize.ExactBytes(m.OverlayBytes))
	r.AddIf("GUEST PAUSED", m.GuestPaused)
	r.AddIf("GUEST NOT RESUMED", m.GuestNotResumed)
	if p := m.ChainProblem; p != nil {
		r.Add("DISK CHANGED", p.Message)
		r.AddIf("next", p.Cure)
	}
	r.AddIf("guest slowed", m.GuestThrottled)
	r.Add("verify", m.Verify)
	r.Add("external copy", render.YesNo(m.ExternalCopy))
	r.Add("delete source", render.YesNo(m.DeleteSource))
	r.Add("stall at start", stallOrDash(m.StallMS.Start))
	r.AddIf("stall at begin of copy", stallOrDash(m.StallMS.Job))
	r.Add("stall at switch", stallOrDash(m.StallMS.Switch))
	r.AddIf("pause", pauseLine(m.PauseSteps))
	r.Add("exposed", render.Seconds(m.ExposedSeconds)+render.OnShared(m))
	r.Add("started", timeOrDash(m.StartedAt))
	r.Add("finished", timeOrDash(m.FinishedAt))
	return &r
}

func pauseLine(steps []api.PauseStep) string {
	var (
		parts []string
		last  api.PauseStep
	)
	for _, step := range steps {
		over := step.Reached == api.PauseRestored
		if step.Host != "" && !over {
			continue
		}
		if last.Reached != "" {
			part := last.Reached + " " + render.Duration(step.At.Sub(last.At))
			if over && len(parts) > 0 && strings.HasPrefix(parts[len(parts)-1], last.Reached+" ") {
				parts[len(parts)-1] = part // until the last guest is resumed
			} else {
				parts = append(parts, part)
			}
		}
		if !over {
			last = step
		}
	}
	return strings.Join(parts, ", ")
}

func stallOrDash(ms *float64) string {
	if ms == nil {
		return ""
	}
	return render.Stall(ms)
}

func migrationWatch(c *cli.Context, s *session.Session) error {
	var m *api.Migration
	err := ofMove(c.Context, s, c.Args().First(), func(ref string) (err error) {
		m, _, err = session.Show(c.Context, s, routes.ShowMigration, ref)
		return err
	})
	if err != nil {
		return err
	}
	return watchMigration(c.Context, s, m, false)
}
