// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

const deleteSourceName = "delete-source"

func releasedCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "released", Usage: "list the sources that moves of a host have released and that still exist", Action: withSession(migrationReleased),
			Description: "A released source belongs to no volume, and Volferry does not delete it by itself. The column\n" +
				"DELETE shows whether 'migration delete-source' would refuse it; the lines below the table have\n" +
				"the reasons.",
			Flags: append(filterFlags("volume", "pool"), hostFlag("the sources of `HOST`")),
		},
		{
			Name: deleteSourceName, Usage: "delete the source that a completed migration has released", ArgsUsage: "[MIGRATION]", Action: withSession(migrationDeleteSource),
			UsageText: session.Program + " migration delete-source {MIGRATION | --pool POOL [--host HOST]} [--yes] [--force]",
			Description: "The command is refused if a process or another image uses the image, if the image was written\n" +
				"since the move, for example by a guest that was started on it, and if another image is at its\n" +
				"path now. If Volferry cannot tell whether the image was written, for example a device after a\n" +
				"reboot of its host, the command asks, or needs --force. The name of a volume is accepted if the\n" +
				"volume has released only one source. With --pool the command deletes all sources that moves of\n" +
				"the host have released in the pool, except the refused sources: it lists them with the reasons,\n" +
				"and the exit status is 4 then. 'migration released --pool POOL' shows both before.",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "pool", Usage: "delete all released sources in `POOL`"},
				hostFlag("with --pool: the sources of `HOST`"),
				&cli.BoolFlag{Name: flagYes, Usage: "do not ask"},
				&cli.BoolFlag{Name: "force", Usage: "delete it even if Volferry cannot tell whether it was written since the move"},
			},
		},
	}
}

func migrationReleased(c *cli.Context, s *session.Session) error {
	host, err := requestedHost(c, s)
	if err != nil {
		return err
	}
	left, resp, err := session.List(c.Context, s, routes.ListReleased.With("host", host))
	if err != nil {
		return explainHostChoice(err)
	}
	left, resp, err = filterList(left, resp, "released_sources", func(r api.ReleasedSource) bool {
		return matches(c, "volume", r.VolumeName, r.VolumeID) && matches(c, "pool", r.Location.Pool)
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(left, func(a, b api.ReleasedSource) int { return strings.Compare(a.VolumeName, b.VolumeName) })
	t := render.Table{Header: []string{"MIGRATION", "VOLUME", "SIZE", "ON DISK", "HOST", "LOCATION", "SINCE", "DELETE"}}
	ids := make([]string, 0, len(left))
	var why []string
	for i := range left {
		r := &left[i]
		ids = append(ids, r.MigrationID)
		onDisk := "-"
		if r.AllocatedBytes > 0 {
			onDisk = humanize.Bytes(r.AllocatedBytes)
		}
		del := "allowed"
		if r.Blocked != "" {
			del = "refused"
			why = append(why, "", fmt.Sprintf("%s (migration %s): %s", r.VolumeName, r.MigrationID, r.Blocked))
		}
		t.Add(r.MigrationID, r.VolumeName, humanize.Bytes(r.Location.SizeBytes), onDisk, r.Host, render.Location(r.Location), render.Time(r.ReleasedAt), del)
	}
	err = s.PrintList(resp, ids, &t, emptyText(c, "released source", "The journal of this host has no released source that still exists.", "volume", "pool"))
	if err != nil || s.JSON || s.Quiet {
		return err
	}
	return s.PrintLines(why...)
}

func deleteSourceCommand(migration string) string {
	return shell.Line(session.Program, "migration", deleteSourceName, migration)
}

// migrationDeleteSource deletes a released source. It also accepts the name of a volume with one
// released source.
func migrationDeleteSource(c *cli.Context, s *session.Session) error {
	ref := c.Args().First()
	switch {
	case c.IsSet("pool"):
		return deleteSourcesOf(c, s)
	case ref == "":
		return cmdline.Usagef("%sgive a migration, or a pool with --pool", cmdline.Prefix(c))
	case c.IsSet("host"):
		return cmdline.Usagef("%s--host goes with --pool only: a migration has its host", cmdline.Prefix(c))
	}
	err := deleteSourceOf(c, s, ref)
	if !isNotFound(err) {
		return err
	}
	v, _, showErr := session.Show(c.Context, s, routes.ShowVolume, ref)
	if showErr != nil {
		return err
	}
	left := listLeft(c.Context, s, volumeHosts(*v), v.ID)
	if len(left.known) == 1 && len(left.unknown) == 0 {
		s.Say("Migration %s has released the source of volume %s.", left.known[0].MigrationID, v.Name)
		return deleteSourceOf(c, s, left.known[0].MigrationID)
	}
	lines := releasedLines(left)
	if len(lines) == 0 {
		return api.Errorf(api.CodeNotFound, "volume %s has no released source that still exists; %[2]s migration released lists the released sources of other volumes", v.Name, session.Program)
	}
	return &session.AdvisedError{
		Err:    api.Errorf(api.CodeInvalidArgument, "%s is a volume: give the migration that has released the source", v.Name),
		Exit:   api.CodeInvalidArgument.ExitStatus(),
		Advice: strings.Join(lines, "\n"),
	}
}

func deleteSourceOf(c *cli.Context, s *session.Session, ref string) error {
	if err := confirmDeleteSource(c, s, ref); err != nil {
		return err
	}
	return askingUnseen(c, s, func(force bool) error {
		resp, finished, err := session.Perform(c.Context, s, routes.DeleteSource.With("force", boolParam(force)), routes.None{}, ref)
		if err != nil || !finished {
			return err
		}
		return s.PrintResult(resp, ref, deletedText(resp, ref))
	})
}

// deletedText describes a deleted source. An older program's answer may lack the source.
func deletedText(resp session.Response, migration string) string {
	var r api.ReleasedSource
	if err := resp.Decode(routes.DeleteSource.Noun, &r); err != nil || r.Location.Path == "" {
		return fmt.Sprintf("Deleted the source that migration %s has released.", migration)
	}
	return fmt.Sprintf("Deleted %s, %s, which volume %s has released (migration %s).", r.Location.Path, humanize.Bytes(r.Location.SizeBytes), r.VolumeName, r.MigrationID)
}

// askingUnseen deletes a released source. If it is unknown whether a program wrote to it since its
// move, askingUnseen asks the user first. Without a terminal or with --yes such a source stays.
func askingUnseen(c *cli.Context, s *session.Session, remove func(force bool) error) error {
	force := c.Bool("force")
	err := remove(force)
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Details[api.DetailWrittenUnknown] == nil || force || c.Bool(flagYes) {
		return err
	}
	if _, ok := terminal(c); !ok {
		return err
	}
	s.Say("%s", refused.Message)
	if err := confirm(c, s, fmt.Sprintf("Delete %v all the same?", refused.Details[api.DetailWrittenUnknown]), ""); err != nil {
		return err
	}
	return remove(true)
}

func confirmDeleteSource(c *cli.Context, s *session.Session, ref string) error {
	if c.Bool(flagYes) {
		return nil
	}
	m, _, err := session.Show(c.Context, s, routes.ShowMigration, ref)
	if err != nil {
		return err
	}
	return confirm(c, s, fmt.Sprintf("Delete %s, where volume %s was before migration %s?", m.Src.Path, render.VolumeName(m), m.ID),
		fmt.Sprintf("%s would be deleted: give --yes where there is no terminal", m.Src.Path))
}

type leftSources struct {
	known   []api.ReleasedSource
	unknown []string
}

// leftTimeout bounds how long a command with another purpose waits for the list of released
// sources.
const leftTimeout = 10 * time.Second

// listLeft returns the released sources of these hosts, of one volume if volume is not empty: the
// registry asks each host, a daemon answers for its own.
func listLeft(ctx context.Context, s *session.Session, hosts []string, volume string) leftSources {
	ctx, cancel := context.WithTimeout(ctx, leftTimeout) // a source may be on a filesystem that does not answer
	defer cancel()
	var out leftSources
	st, _, err := session.Show(ctx, s, routes.ShowStatus)
	if err != nil {
		return leftSources{unknown: []string{err.Error()}}
	}
	if st.Program == session.DaemonProgram {
		own := slices.Contains(hosts, st.Host) || slices.Contains(hosts, st.HostID)
		for _, h := range hosts {
			if h != st.Host && h != st.HostID {
				out.unknown = append(out.unknown, fmt.Sprintf("host %s was not asked: ask its daemon, or the registry", h))
			}
		}
		if hosts = nil; own {
			hosts = []string{""}
		}
	}
	for _, h := range hosts {
		left, _, err := session.List(ctx, s, routes.ListReleased.With("host", h).With("volume", volume))
		if err != nil {
			out.unknown = append(out.unknown, err.Error())
			continue
		}
		out.known = append(out.known, left...)
	}
	return out
}

func releasedLines(left leftSources) []string {
	var lines []string
	for i := range left.known {
		r := &left.known[i]
		line := fmt.Sprintf("%s, released by migration %s", r.Location.Path, r.MigrationID)
		switch {
		case r.RunBy != "":
			line += fmt.Sprintf("; the guest of instance %s runs on it, and its writes there are not in the volume", r.RunBy)
		case r.Written:
			line += fmt.Sprintf("; written since, so it may have data that the volume lacks ('%s volume which')", session.Program)
		case r.WrittenUnknown != "":
			line += fmt.Sprintf("; it is not known whether it was written since (%s)", r.WrittenUnknown)
		}
		lines = append(lines, line)
	}
	for _, why := range left.unknown {
		lines = append(lines, "not known: "+why)
	}
	return lines
}

// leftInPool returns lines about the sources that a drain's moves left in its pool, with the
// commands that list and delete them.
func leftInPool(ctx context.Context, s *session.Session, d *api.Drain) []string {
	if s.JSON || s.Quiet {
		return nil
	}
	hosts := leaverHosts(ctx, s, d)
	if len(hosts) == 0 {
		return nil
	}
	left := listLeft(ctx, s, hosts, "")
	left.known = slices.DeleteFunc(left.known, func(r api.ReleasedSource) bool { return r.Location.Pool != d.Pool })
	var lines []string
	if n := len(left.known); n > 0 {
		var bytes int64
		for i := range left.known {
			bytes += left.known[i].Location.SizeBytes
		}
		lines = append(lines, fmt.Sprintf("Still in pool %s: %s, %s.", d.Pool, humanize.Count(n, "released source"), humanize.Bytes(bytes)),
			"List them:  "+shell.Line(session.Program, "migration", "released", "--pool", d.Pool),
			"Delete one: "+deleteSourceCommand("MIGRATION"),
			"Delete all: "+shell.Line(session.Program, "migration", deleteSourceName, "--pool", d.Pool))
	}
	for _, why := range left.unknown {
		lines = append(lines, fmt.Sprintf("Released sources in pool %s are not known: %s.", d.Pool, why))
	}
	return lines
}

// leaverHosts returns the hosts that moved volumes of a drain or, if none did, the pool's hosts,
// where earlier moves may have left sources.
func leaverHosts(ctx context.Context, s *session.Session, d *api.Drain) []string {
	var hosts []string
	add := func(host string) {
		if host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	for _, v := range d.Volumes {
		if v.State == api.DrainVolumeMoved {
			add(v.Host)
		}
	}
	if inDrain(d) > 0 {
		return hosts
	}
	pools, _, err := session.List(ctx, s, routes.ListPools)
	if err != nil {
		return nil
	}
	for _, p := range pools {
		if p.Name == d.Pool {
			add(p.Host)
		}
	}
	return hosts
}
