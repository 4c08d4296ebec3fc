// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// releasedCommands are about the sources that moves have left.
func releasedCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "released", Usage: "list the sources that moves of a host have left and that are still there", Action: withSession(migrationReleased),
			Description: "A source that a move has left belongs to no volume, and nothing deletes it by itself. The column\n" +
				"NOT NOW says why 'migration delete-source' would refuse it.",
			Flags: append(filterFlags("volume", "pool"), hostFlag("the sources of `HOST`")),
		},
		{
			Name: "delete-source", Usage: "delete the source that a completed migration has left", ArgsUsage: "MIGRATION", Action: withSession(migrationDeleteSource),
			UsageText: session.Program + " migration delete-source MIGRATION [--yes]",
			Description: "It is refused if anything uses the image, or is over it; if something has written to it since, as a\n" +
				"guest does that was started on it; and if another image is at its place by now.",
			Flags: []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "do not ask"}},
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
	t := render.Table{Header: []string{"MIGRATION", "VOLUME", "SIZE", "ON DISK", "HOST", "LOCATION", "SINCE", "NOT NOW"}}
	ids := make([]string, 0, len(left))
	for i := range left {
		r := &left[i]
		ids = append(ids, r.MigrationID)
		onDisk := "-"
		if r.AllocatedBytes > 0 {
			onDisk = api.Bytes(r.AllocatedBytes)
		}
		t.Add(r.MigrationID, r.VolumeName, api.Bytes(r.Location.SizeBytes), onDisk, r.Host, render.Location(r.Location), render.Time(r.ReleasedAt), render.OrDash(r.Blocked))
	}
	return s.PrintList(resp, ids, &t, emptyText(c, "released source", "No move that this host's journal knows has left a source that is still there.", "volume", "pool"))
}

func migrationDeleteSource(c *cli.Context, s *session.Session) error {
	ref := c.Args().First()
	if err := confirmDeleteSource(c, s, ref); err != nil {
		return err
	}
	resp, finished, err := session.Perform(c.Context, s, routes.DeleteSource, routes.None{}, ref)
	if err != nil || !finished {
		return err
	}
	return s.PrintResult(resp, ref, fmt.Sprintf("Deleted the source that migration %s has left.", ref))
}

// confirmDeleteSource asks before an image is deleted. Whoever cannot be asked says --yes.
func confirmDeleteSource(c *cli.Context, s *session.Session, ref string) error {
	if c.Bool("yes") {
		return nil
	}
	m, _, err := session.Show(c.Context, s, routes.ShowMigration, ref)
	if err != nil {
		return err
	}
	return confirm(c, s, fmt.Sprintf("Delete %s, where volume %s was before migration %s?", m.Src.Path, render.VolumeName(m), m.ID),
		fmt.Sprintf("%s would be deleted: give --yes where nobody can be asked", m.Src.Path))
}
