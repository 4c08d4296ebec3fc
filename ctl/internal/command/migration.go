// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func migrationCommand() *cli.Command {
	return &cli.Command{
		Name:  "migration",
		Usage: "moves of volumes: follow them, or make them step by step",
		Description: "'volume migrate' makes a whole move at once. Its steps are here: 'start' freezes the source,\n" +
			"'copy' copies it (or any other tool does), 'complete' switches over to the destination.\n" +
			"'cancel' gives the source back at any time before the switch. 'start' takes the\n" +
			"attachment that is moved; the others take the name of its volume, the id of the migration, or\n" +
			"the id of the attachment that it was started on.",
		Subcommands: append([]*cli.Command{
			{
				Name: "start", Usage: "freeze an attachment's source and prepare its destination", ArgsUsage: "ATTACHMENT",
				UsageText: session.Program + " migration start ATTACHMENT (--to-pool POOL | --to-path PATH) [FLAGS]",
				Description: "Returns when nothing writes to the source any more; new writes of the guest go to a local\n" +
					"overlay. Prints the destination's attachment, which 'migration complete' needs.",
				Flags: targetFlags(), Action: withSession(migrationStart),
			},
			{
				Name: "copy", Usage: "copy source to destination and check the copy", ArgsUsage: "MOVE", Action: withSession(migrationCopy),
			},
			{
				Name: "complete", Usage: "switch over to the destination and let go of the source", ArgsUsage: "MOVE [DST_ATTACHMENT]",
				UsageText: session.Program + " migration complete MOVE\n       " + session.Program + " migration complete ATTACHMENT DST_ATTACHMENT",
				Description: "The second form makes sure that it is the destination that you think of. After it, the guest\n" +
					"runs on the destination and the source is free.",
				Flags:  discardFlags(),
				Action: withSession(migrationComplete),
			},
			{
				Name: "cancel", Usage: "give the source back and drop the destination", ArgsUsage: "MOVE",
				Description: "What the guest wrote meanwhile is put into the source. Refused once the switch has been made.",
				Flags:       discardFlags(),
				Action:      withSession(migrationCancel),
			},
			{
				Name: "list", Usage: "list migrations that are not over", Action: withSession(migrationList),
				Description: "--status compares with the column STATE.\n\n" +
					"For example: " + session.Program + " migration list --pool old --status completed",
				Flags: append(filterFlags("volume", "instance", "host"),
					&cli.BoolFlag{Name: "all", Usage: "finished ones too (a finished --status implies it)"},
					&cli.StringFlag{Name: "pool", Usage: "from or to `POOL`"},
					filterStatus(api.MigrationState("").Values())),
			},
			{Name: "show", Usage: "show one migration", ArgsUsage: "MIGRATION", Action: withSession(migrationShow)},
			{
				Name: "watch", Usage: "follow a migration until it is over", ArgsUsage: "MIGRATION", Action: withSession(migrationWatch),
				Description: "Ctrl-C stops the watching, not the migration. The exit status is that of the migration: 0, or\n" +
					"6 if it ended in error, or 7 if it needs an operator.",
			},
			{
				Name: "set", Usage: "change a migration while it runs", ArgsUsage: "MIGRATION", Action: withSession(migrationSet),
				UsageText: session.Program + " migration set MIGRATION --bandwidth RATE",
				Flags:     []cli.Flag{&cli.StringFlag{Name: "bandwidth", Usage: "copy, and read back to verify, no faster than `RATE` each, for example 100MiB/s; 0 for no limit"}},
			},
			{
				Name: "abandon", Usage: "end a migration whose host is fenced, at the registry alone", ArgsUsage: "MIGRATION", Action: withSession(migrationAbandon),
				UsageText: session.Program + " migration abandon MIGRATION --keep src|dst [--even-if-corrupt] --reason TEXT",
				Description: "For a migration in state orphaned. --keep says which copy is the volume from now on: src holds\n" +
					"all that was written until the start; what the guest wrote after it is lost, since its overlay is\n" +
					"on the host. dst is the volume only if the switch had been made. If it had not, and the migration\n" +
					"was completing, dst may be a corrupt filesystem: --even-if-corrupt takes it nevertheless.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "keep", Usage: "`COPY` that is the volume: src or dst", Action: cmdline.CheckWord("keep")},
					&cli.BoolFlag{Name: "even-if-corrupt", Usage: "keep a dst of which Volferry does not know that it is complete: you have checked it, or know that the switch was made"},
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
	return runMigration(c.Context, s, routes.StartMigration, target, c.Args().First())
}

func migrationCopy(c *cli.Context, s *session.Session) error {
	return runStep(c.Context, s, routes.CopyByAttachment, routes.None{}, routes.CopyMigration, c.Args().First())
}

func migrationCancel(c *cli.Context, s *session.Session) error {
	if c.Bool(flagDiscard) {
		return endWithoutMemory(c, s, routes.CancelMigration)
	}
	return runStep(c.Context, s, routes.CancelByAttachment, routes.None{}, routes.CancelMigration.WithoutBody(), c.Args().First())
}

func migrationComplete(c *cli.Context, s *session.Session) error {
	if c.Bool(flagDiscard) {
		return endWithoutMemory(c, s, routes.CompleteMigration)
	}
	if dst := c.Args().Get(1); dst != "" {
		in := api.MigrationComplete{DstAttachmentID: attachmentID(c.Context, s, dst)}
		return runStep(c.Context, s, routes.CompleteByAttachment, in, routes.CompleteMigration.WithoutBody(), c.Args().First())
	}
	route := routes.CompleteMigration.WithoutBody()
	return orOfMove(c.Context, s, route, c.Args().First(), runMigration(c.Context, s, route, routes.None{}, c.Args().First()))
}

// runStep works on the migration of the attachment id. If there is no such attachment, id
// may be the migration itself, or the name of its volume. If it is none of them, the first
// error is returned.
func runStep[In any](ctx context.Context, s *session.Session, ofAttachment routes.Route[In, api.Migration], in In, ofMigration routes.Route[routes.None, api.Migration], id string) error {
	id = attachmentID(ctx, s, id)
	err := runMigration(ctx, s, ofAttachment, in, id)
	if !isNotFound(err) {
		return err
	}
	if second := runMigration(ctx, s, ofMigration, routes.None{}, id); !isNotFound(second) {
		return second
	}
	return orOfMove(ctx, s, ofMigration, id, err)
}

// orOfMove works on the migration whose volume, or whose attachment, ref names, if err says
// that there is no migration ref. Otherwise it returns err.
func orOfMove(ctx context.Context, s *session.Session, route routes.Route[routes.None, api.Migration], ref string, err error) error {
	if !isNotFound(err) {
		return err
	}
	for _, list := range []routes.Route[routes.None, []api.Migration]{routes.ListMigrations, routes.ListMigrations.With("all", "1")} {
		moves, _, listErr := session.List(ctx, s, list)
		if listErr != nil {
			return err
		}
		slices.SortStableFunc(moves, func(a, b api.Migration) int { return startedOf(&b).Compare(startedOf(&a)) })
		byVolume := api.Lookup(moves, ref, func(m *api.Migration) (string, string) { return m.VolumeID, m.VolumeName })
		found := append(byVolume, api.Lookup(moves, ref, func(m *api.Migration) (string, string) { return m.SrcAttachmentID, "" })...)
		if len(found) > 0 && !slices.ContainsFunc(found, func(m api.Migration) bool { return m.VolumeID != found[0].VolumeID }) {
			return runMigration(ctx, s, route, routes.None{}, found[0].ID)
		}
	}
	return &session.AdvisedError{
		Err: api.AsError(err), Exit: api.ExitNotFound,
		Advice: fmt.Sprintf("No volume of this name moves, nor is there a migration or an attachment with this id: '%s migration list --all' shows what there is.", session.Program),
	}
}

// attachmentID is the id of the attachment that ref is a prefix of. If there is none it is
// ref, and the request itself says so.
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
	if !c.IsSet("bandwidth") {
		return cmdline.Usagef("migration set: nothing to change: give --bandwidth, for example --bandwidth 100MiB/s")
	}
	rate, err := parseRate(c.String("bandwidth"))
	if err != nil {
		return err
	}
	in := api.MigrationUpdate{BandwidthBytesPerSecond: &rate}
	m, resp, err := session.Change(c.Context, s, routes.UpdateMigration, in, c.Args().First())
	if err != nil {
		return err
	}
	return s.PrintResult(resp, m.ID, fmt.Sprintf("Migration %s of volume %s copies at %s.", m.ID, render.VolumeName(m), atMost(rate)))
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
