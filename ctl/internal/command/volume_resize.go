// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

func volumeResizeCommand() *cli.Command {
	return &cli.Command{
		Name: "resize", Usage: "make a volume larger, also while its guest runs", ArgsUsage: "VOLUME", Action: withSession(volumeResize),
		UsageText: session.Program + " volume resize VOLUME --size SIZE",
		Description: "The volume may belong to a running, paused or stopped instance, or to none. A running guest sees\n" +
			"the new size at once; grow its partitions and filesystems in the guest. A volume is never made\n" +
			"smaller. Make a block device larger with its own tool first (lvextend), and then run this\n" +
			"command.\n\n" +
			"For example: " + session.Program + " volume resize db-data --size 40GiB",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "size", Usage: "the new `SIZE`, for example 40GiB or 42949672960 (bytes)"},
		},
	}
}

func volumeResize(c *cli.Context, s *session.Session) error {
	if c.String("size") == "" {
		return cmdline.Usagef("volume resize: --size is missing: give for example --size 40GiB")
	}
	size, err := cmdline.ParseDiskSize(c.String("size"))
	if err != nil {
		return err
	}
	name := c.Args().First()
	v, resp, finished, err := performOnVolume(c.Context, s, routes.ResizeVolume, name, api.VolumeResize{SizeBytes: size}, name)
	if err != nil || !finished {
		return err
	}
	return s.PrintResult(resp, v.ID, fmt.Sprintf("Volume %s (%s) has %s.", v.Name, v.ID, humanize.ExactBytes(v.SizeBytes)))
}
