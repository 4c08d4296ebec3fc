// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func volumeRetypeCommand() *cli.Command {
	move := targetFlags()
	return &cli.Command{
		Name: "retype", Usage: "give a volume another type", ArgsUsage: "VOLUME", Action: withSession(volumeRetype),
		UsageText: session.Program + " volume retype VOLUME --type TYPE\n" +
			"       " + session.Program + " volume retype VOLUME --type TYPE --migration-policy on-demand [--to-pool POOL | --to-path PATH] [FLAGS]",
		Description: "If the new type does not allow the volume's pool, --migration-policy on-demand moves the volume\n" +
			"to the allowed pool of its host with the most room; without it the retype is refused. --to-pool\n" +
			"and --to-path name the destination instead: the volume is moved there even if the type allows its\n" +
			"present pool. A --to-format that is not the present format also moves the volume. A type with\n" +
			"another value of multiattach is refused while the volume is attached.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "type", Usage: "the name or id of its new `TYPE`"},
			&cli.StringFlag{
				Name: "migration-policy", Value: api.RetypeNever, DefaultText: api.RetypeNever, Action: cmdline.CheckWord("migration-policy"),
				Usage: "`WHEN` to move the volume: never, or on-demand if its new type needs another pool, or you name another place",
			},
			cmdline.FindFlag(move, "to-pool"), cmdline.FindFlag(move, "to-path"), cmdline.FindFlag(move, "to-format"), cmdline.FindFlag(move, "method"),
			cmdline.FindFlag(move, "bandwidth"), paceFlag(), cmdline.FindFlag(move, "verify"), cmdline.FindFlag(move, "delete-source"), cmdline.FindFlag(move, "checkpoints"),
			&cli.BoolFlag{Name: flagYes, Usage: "do not ask whether a file at --to-path may be overwritten"},
			dryRunFlag(),
		},
	}
}

func readRetype(c *cli.Context) (api.VolumeRetype, error) {
	in := api.VolumeRetype{
		Type: c.String("type"), MigrationPolicy: c.String("migration-policy"), ToPool: c.String("to-pool"), ToFormat: api.Format(c.String("to-format")),
		Overwrite: c.Bool(flagYes), Pace: c.String("pace"), Verify: c.String("verify"), DeleteSource: c.Bool("delete-source"), Checkpoints: c.String("checkpoints"),
	}
	var err error
	if in.ToPath, err = absolute("to-path", c.String("to-path")); err != nil {
		return in, err
	}
	if c.IsSet("method") {
		in.Method = c.String("method")
	}
	if c.IsSet("bandwidth") {
		if in.BandwidthBytesPerSecond, err = parseRate(c.String("bandwidth")); err != nil {
			return in, err
		}
	}
	bare := api.VolumeRetype{Type: in.Type, MigrationPolicy: in.MigrationPolicy}
	switch {
	case in.Type == "":
		return in, cmdline.Usagef("volume retype: --type is missing: give the new type, for example --type fast")
	case in.MigrationPolicy != api.RetypeOnDemand && in != bare:
		return in, cmdline.Usagef("volume retype: --to-pool, --to-path, --to-format, --method, --bandwidth, --pace, --verify, --delete-source, --checkpoints and --yes need --migration-policy on-demand")
	case in.ToPool != "" && in.ToPath != "":
		return in, cmdline.Usagef("volume retype: --to-pool and --to-path exclude each other: give one, or none")
	case in.DeleteSource && in.Verify == api.VerifyNone:
		return in, cmdline.Usagef("volume retype: --delete-source needs a verified copy: leave --verify none out")
	case in.Overwrite && in.ToPath == "":
		return in, cmdline.Usagef("volume retype: --yes goes with --to-path only")
	}
	return in, nil
}

func volumeRetype(c *cli.Context, s *session.Session) error {
	in, err := readRetype(c)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		return showRetypePlan(c, s, in)
	}
	return askingOverwrite(c, s, in.Overwrite, func(overwrite bool) error {
		in.Overwrite = overwrite
		return retype(c, s, in)
	})
}

func retype(c *cli.Context, s *session.Session, in api.VolumeRetype) error {
	resp, finished, err := session.Perform(c.Context, s, routes.RetypeVolume, in, c.Args().First())
	if err != nil || !finished {
		return err
	}
	if resp.Has("migration") {
		return printMigration(s, resp)
	}
	var v api.Volume
	if err := resp.Decode("volume", &v); err != nil {
		return err
	}
	return s.PrintResult(resp, v.ID, fmt.Sprintf("Volume %s has the type %s now; it stays at %s.", v.Name, v.Type, render.Location(v.Location)))
}

func showRetypePlan(c *cli.Context, s *session.Session, in api.VolumeRetype) error {
	p, resp, err := session.Ask(c.Context, s, routes.PlanRetype, in, c.Args().First())
	if err != nil {
		return err
	}
	r, done := &render.Record{}, "the volume gets its type where it is"
	if p.Move != nil {
		r, done = planRecord(p.Move), "the volume is moved, and has its new type then"
	} else {
		r.Add("volume", p.VolumeName)
		r.Add("stays at", placeText(p.Location))
	}
	r.Add("type", p.FromType+" -> "+p.ToType)
	if err := s.PrintRecord(resp, p.VolumeID, r); err != nil {
		return err
	}
	s.Say("Nothing was done. Without --dry-run %s.", done)
	return nil
}
