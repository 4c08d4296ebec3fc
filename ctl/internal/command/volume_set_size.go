// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

func volumeSetSizeCommand() *cli.Command {
	return &cli.Command{
		Name: "set-size", Usage: "set the registry's size of a volume to the size of its image", ArgsUsage: "VOLUME", Action: withSession(volumeSetSize),
		UsageText: session.Program + " volume set-size VOLUME --size SIZE --evidence TEXT [--host HOST]",
		Description: "For a volume with a wrong size at the registry, for example because a host with the key of\n" +
			"another host has set it. The size may also get smaller. The image is not changed ('volume resize'\n" +
			"does that). A host that reaches the image has to report exactly this size, or the command is\n" +
			"refused. Be sure that the image is the volume, and that no data is missing at its end.\n\n" +
			"For example: " + session.Program + " volume set-size db-data --size 40GiB --evidence 'as in the ticket of its order'",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "size", Usage: "the `SIZE` of the image, for example 40GiB or 42949672960 (bytes)"},
			&cli.StringFlag{Name: "evidence", Usage: "how you know that the image is the whole volume: `TEXT` for the audit trail"},
			&cli.StringFlag{Name: "host", DefaultText: "the host that has the volume", Usage: "`HOST` that reads the size of the image"},
		},
	}
}

func volumeSetSize(c *cli.Context, s *session.Session) error {
	evidence := strings.TrimSpace(c.String("evidence"))
	switch {
	case c.String("size") == "":
		return cmdline.Usagef("volume set-size: --size is missing: give the size of the image, for example --size 40GiB")
	case evidence == "":
		return cmdline.Usagef("volume set-size: --evidence is missing: say how you know that the image is the whole volume, for example --evidence 'as in the ticket of its order'")
	}
	size, err := cmdline.ParseDiskSize(c.String("size"))
	if err != nil {
		return err
	}
	v, resp, err := session.Change(c.Context, s, routes.SetVolumeSize, api.VolumeSize{SizeBytes: size, Evidence: evidence, Host: c.String("host")}, c.Args().First())
	if err != nil {
		return err
	}
	return s.PrintResult(resp, v.ID, fmt.Sprintf("Volume %s (%s) has %s.", v.Name, v.ID, humanize.ExactBytes(v.SizeBytes)))
}
