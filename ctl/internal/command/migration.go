// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

func migrationCommand() *cli.Command {
	return &cli.Command{
		Name:  "migration",
		Usage: "follow the moves of volumes, or make a move step by step",
		Description: "'volume migrate' makes a whole move. The commands here make its steps: 'start' freezes the\n" +
			"source, 'copy' copies it (or another tool copies it), 'complete' switches the volume to the\n" +
			"destination. 'cancel' returns the volume to the source at any time before the switch. 'start'\n" +
			"takes the attachment that is to be moved. A MOVE is the name of the volume, the id of the\n" +
			"migration, or the id of the attachment that 'start' has taken. If a volume has several moves,\n" +
			"MOVE means the move that runs, or else the last move.",
		Subcommands: append([]*cli.Command{
			{
				Name: "start", Usage: "freeze an attachment's source and prepare its destination", ArgsUsage: "ATTACHMENT",
				UsageText: session.Program + " migration start ATTACHMENT (--to-pool POOL | --to-path PATH) [FLAGS]",
				Description: "Returns when no process writes to the source any more; new writes of the guest go to a local\n" +
					"overlay. Prints the destination's attachment, which the second form of 'migration complete'\n" +
					"needs.",
				Flags: append(targetFlags(), &cli.BoolFlag{Name: flagYes, Usage: "do not ask whether a file at --to-path may be overwritten"}), Action: withSession(migrationStart),
			},
			{
				Name: "copy", Usage: "copy source to destination and check the copy", ArgsUsage: "MOVE", Action: withSession(migrationCopy),
				Description: "A copy that has failed continues where it stopped. If the move was requested as a whole, for\n" +
					"example by 'volume migrate', it then continues to its end.",
				Flags: []cli.Flag{paceFlagOr("unchanged")},
			},
			{
				Name: "complete", Usage: "switch to the destination and release the source", ArgsUsage: "MOVE [DST_ATTACHMENT]",
				UsageText: session.Program + " migration complete MOVE\n       " + session.Program + " migration complete ATTACHMENT DST_ATTACHMENT",
				Description: "The second form also checks that DST_ATTACHMENT is the destination of the migration. After the\n" +
					"command the guest runs on the destination, and the source is free.",
				Flags:  discardFlags(),
				Action: withSession(migrationComplete),
			},
			{
				Name: "cancel", Usage: "return to the source and drop the destination", ArgsUsage: "MOVE",
				Description: "The writes of the guest since the start are put into the source. The command is refused after the\n" +
					"switch.",
				Flags:  discardFlags(),
				Action: withSession(migrationCancel),
			},
			{
				Name: "list", Usage: "list migrations that are not over", Action: withSession(migrationList),
				Description: "--status compares with the column STATE.\n\n" +
					"For example: " + session.Program + " migration list --pool old --status completed",
				Flags: append(filterFlags("volume", "instance", "host"),
					&cli.BoolFlag{Name: "all", Usage: "also list finished migrations (a finished --status implies it)"},
					&cli.StringFlag{Name: "pool", Usage: "from or to `POOL`"},
					filterStatus(api.MigrationState("").Values())),
			},
			{Name: "show", Usage: "show one migration; for a volume the current migration, or the last one", ArgsUsage: "MOVE", Action: withSession(migrationShow)},
			{
				Name: "watch", Usage: "follow a migration until it is over", ArgsUsage: "MOVE", Action: withSession(migrationWatch),
				Description: "Ctrl-C ends this command, not the migration. The exit status is 6 if the migration ends in error,\n" +
					"7 if it needs an operator, and otherwise 0.",
			},
			{
				Name: "set", Usage: "change a migration while it runs", ArgsUsage: "MOVE", Action: withSession(migrationSet),
				UsageText: session.Program + " migration set MOVE [--bandwidth RATE] [--pace HOW]",
				Flags:     []cli.Flag{&cli.StringFlag{Name: "bandwidth", Usage: "limit the copy, and the read that verifies it, to `RATE` each, for example 100MiB/s; 0 for no limit"}, paceFlagOr("unchanged")},
			},
			{
				Name: "abandon", Usage: "end a migration of a fenced host, at the registry alone", ArgsUsage: "MIGRATION", Action: withSession(migrationAbandon),
				UsageText: session.Program + " migration abandon MIGRATION --keep src|dst [--even-if-corrupt] --reason TEXT",
				Description: "For a migration in state orphaned. --keep selects the copy that is the volume from now on. src\n" +
					"has all writes until the start; the later writes of the guest are lost, because the overlay is on\n" +
					"the host. dst is the volume only if the switch had been made. If it had not been made, and the\n" +
					"migration was completing, dst may be a corrupt filesystem: --even-if-corrupt keeps dst\n" +
					"nevertheless.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "keep", Usage: "`COPY` that is the volume: src or dst", Action: cmdline.CheckWord("keep")},
					&cli.BoolFlag{Name: "even-if-corrupt", Usage: "keep dst although Volferry cannot tell whether dst is complete: you have checked dst, or know that the switch was made"},
					&cli.StringFlag{Name: "reason", Usage: "how you know: `TEXT` for the audit trail"},
				},
			},
		}, releasedCommands()...),
	}
}

func migrationStart(c *cli.Context, s *session.Session) error {
	target, err := readTarget(c)
	if err != nil {
		return err
	}
	err = moveTo(c, s, routes.StartMigration, target)
	if !isNotFound(err) {
		return err
	}
	return orOfVolume(c.Context, s, c.Args().First(), err)
}

// orOfVolume returns err, about a missing attachment, or an error with the attachments of the
// volume that ref names.
func orOfVolume(ctx context.Context, s *session.Session, ref string, err error) error {
	if _, _, showErr := session.Show(ctx, s, routes.ShowAttachment, ref); !isNotFound(showErr) {
		return err // another thing was not found
	}
	v, _, showErr := session.Show(ctx, s, routes.ShowVolume, ref)
	if showErr != nil {
		return err
	}
	its, advice := "no attachment", "Move it: "
	if len(v.Attachments) > 0 {
		ids := make([]string, 0, len(v.Attachments))
		for _, a := range v.Attachments {
			ids = append(ids, fmt.Sprintf("%s (%s of instance %s)", a.ID, a.Device, cmp.Or(a.InstanceName, a.InstanceID)))
		}
		its = "attachment " + strings.Join(ids, ", ")
		advice = "Give the id of an attachment, or make the whole move: "
	}
	return &session.AdvisedError{
		Err:  api.Errorf(api.CodeNotFound, "there is no attachment %q: a volume has that name, with %s", ref, its),
		Exit: api.ExitNotFound, Advice: advice + shell.Line(session.Program, "volume", "migrate", v.Name, "--to-pool", "POOL"),
	}
}

func migrationCopy(c *cli.Context, s *session.Session) error {
	if pace := c.String("pace"); pace != "" {
		if err := setPace(c.Context, s, c.Args().First(), pace); err != nil {
			return err
		}
	}
	return runStep(c.Context, s, routes.CopyByAttachment, routes.None{}, routes.CopyMigration, c.Args().First())
}

func setPace(ctx context.Context, s *session.Session, ref, pace string) error {
	return ofMove(ctx, s, ref, func(ref string) error {
		_, _, err := session.Change(ctx, s, routes.UpdateMigration, api.MigrationUpdate{Pace: pace}, ref)
		return err
	})
}

func migrationCancel(c *cli.Context, s *session.Session) error {
	if c.Bool(flagDiscard) {
		return endWithoutMemory(c, s, routes.CancelMigration)
	}
	ref := c.Args().First()
	err := runStep(c.Context, s, routes.CancelByAttachment, routes.None{}, routes.CancelMigration.WithoutBody(), ref)
	if api.CodeOf(err) != api.CodeNoMigration {
		return err
	}
	// A daemon finds a move by its volume's name only while it is open. For a move cancelled
	// before, the answer is its cancel.
	if m, _, findErr := findMove(c.Context, s, ref); findErr != nil || m == nil || m.State != api.MigrationCancelled {
		return err
	}
	return orOfMove(c.Context, s, ref, api.NotFound("migration", ref), func(id string) error {
		return runMigration(c.Context, s, routes.CancelMigration.WithoutBody(), routes.None{}, id)
	})
}

func migrationComplete(c *cli.Context, s *session.Session) error {
	if c.Bool(flagDiscard) {
		return endWithoutMemory(c, s, routes.CompleteMigration)
	}
	if dst := c.Args().Get(1); dst != "" {
		in := api.MigrationComplete{DstAttachmentID: attachmentID(c.Context, s, dst)}
		return runStep(c.Context, s, routes.CompleteByAttachment, in, routes.CompleteMigration.WithoutBody(), c.Args().First())
	}
	return ofMove(c.Context, s, c.Args().First(), func(ref string) error {
		return runMigration(c.Context, s, routes.CompleteMigration.WithoutBody(), routes.None{}, ref)
	})
}

// runStep works on the migration of the attachment id. If there is none, id may be the migration
// itself, or its volume's name. Otherwise runStep returns the first error.
func runStep[In any](ctx context.Context, s *session.Session, ofAttachment routes.Route[In, api.Migration], in In, ofMigration routes.Route[routes.None, api.Migration], id string) error {
	id = attachmentID(ctx, s, id)
	err := runMigration(ctx, s, ofAttachment, in, id)
	if !isNotFound(err) {
		return err
	}
	run := func(ref string) error { return runMigration(ctx, s, ofMigration, routes.None{}, ref) }
	if second := run(id); !isNotFound(second) {
		return second
	}
	return orOfMove(ctx, s, id, err, run)
}

func attachmentID(ctx context.Context, s *session.Session, ref string) string {
	if uuid.Validate(ref) == nil {
		return ref
	}
	at, _, err := session.Show(ctx, s, routes.ShowAttachment, ref)
	if err != nil {
		return ref
	}
	return at.ID
}

func migrationSet(c *cli.Context, s *session.Session) error {
	in := api.MigrationUpdate{Pace: c.String("pace")}
	var now []string
	switch {
	case c.IsSet("bandwidth"):
		rate, err := parseRate(c.String("bandwidth"))
		if err != nil {
			return err
		}
		in.BandwidthBytesPerSecond = &rate
		now = append(now, "at "+atMost(rate))
	case in.Pace == "":
		return cmdline.Usagef("migration set: nothing to change: give --bandwidth, for example --bandwidth 100MiB/s, or --pace")
	}
	if in.Pace != "" {
		now = append(now, "with pace "+in.Pace)
	}
	return ofMove(c.Context, s, c.Args().First(), func(ref string) error {
		m, resp, err := session.Change(c.Context, s, routes.UpdateMigration, in, ref)
		if err != nil {
			return err
		}
		return s.PrintResult(resp, m.ID, fmt.Sprintf("Migration %s of volume %s copies %s.", m.ID, render.VolumeName(m), strings.Join(now, ", ")))
	})
}

func migrationAbandon(c *cli.Context, s *session.Session) error {
	in := api.MigrationAbandon{Keep: c.String("keep"), Reason: strings.TrimSpace(c.String("reason")), EvenIfCorrupt: c.Bool("even-if-corrupt")}
	if in.Keep == "" || in.Reason == "" {
		return cmdline.Usagef("migration abandon: give both --keep src|dst and --reason TEXT")
	}
	m, resp, err := session.Change(c.Context, s, routes.AbandonMigration, in, c.Args().First())
	if err != nil {
		return err
	}
	kept := m.Src
	if in.Keep == api.KeepDst {
		kept = m.Dst
	}
	return s.PrintResult(resp, m.ID, fmt.Sprintf("Abandoned migration %s: volume %s is at %s.", m.ID, render.VolumeName(m), render.Location(kept)))
}
