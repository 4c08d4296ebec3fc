// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func volumeAttachCommand() *cli.Command {
	return &cli.Command{
		Name: "attach", Usage: "give a volume to an instance, also while it runs", ArgsUsage: "VOLUME INSTANCE", Action: withSession(volumeAttach),
		UsageText: session.Program + " volume attach VOLUME INSTANCE [--device vdb] [--mode rw|ro]\n       " + session.Program + " volume attach VOLUME INSTANCE --root",
		Description: "A volume has one attachment, unless its type is multiattach: then instances, also on several\n" +
			"hosts, share it, and it is up to them not to destroy each other's data.\n\n" +
			"With --root the instance boots from the volume, which replaces the root volume that was detached.\n" +
			"The instance has to be stopped or shelved_offloaded; it cannot start without a root volume.\n\n" +
			"A volume that was at the instance before comes back as the disk that it was: device, limits, cache,\n" +
			"queues, serial and whatever else its definition had. --default-settings makes it a new disk.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "device", DefaultText: "the next free one", Usage: "as `DEVICE` of the instance, for example vdb"},
			&cli.BoolFlag{Name: "root", Usage: "as its root volume, in the slot that is empty"},
			&cli.BoolFlag{Name: "default-settings", Usage: "as a new disk, without the settings that it had at the instance before"},
			&cli.StringFlag{Name: "mode", Value: string(api.ModeRW), DefaultText: "rw", Usage: "`MODE`: rw, or ro for a guest that may only read", Action: cmdline.CheckWord("mode")},
		},
	}
}

func volumeDetachCommand() *cli.Command {
	return &cli.Command{
		Name: "detach", Usage: "take a volume away from an instance, also while it runs", ArgsUsage: "VOLUME INSTANCE", Action: withSession(volumeDetach),
		Description: "A running guest is asked to let go of the disk, and its answer is awaited. If it does not\n" +
			"answer, everything is as before: unmount the disk in the guest, or stop the instance, and try\n" +
			"again. A root volume is taken from an instance that is stopped or shelved_offloaded; it does not\n" +
			"start until it has another one.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "overlook the state of the attachment; refused all the same if the guest has the disk"}},
	}
}

func volumeAttach(c *cli.Context, s *session.Session) error {
	volume, instance := c.Args().Get(0), c.Args().Get(1)
	in := api.VolumeAttach{Instance: instance, Device: c.String("device"), Mode: api.Mode(c.String("mode")), Root: c.Bool("root"), DefaultSettings: c.Bool("default-settings")}
	if in.Root && in.Device != "" {
		return cmdline.Usagef("volume attach: --root and --device exclude each other: the root slot has its device")
	}
	resp, finished, err := session.Perform(c.Context, s, routes.AttachVolume, in, volume)
	if err != nil || !finished {
		return err
	}
	at, resp, err := attachmentAfter(c.Context, s, resp)
	if err != nil {
		return err
	}
	what := "volume"
	if in.Root {
		what = "root volume"
	}
	volume, instance = s.NameOf(c.Context, "volumes", volume), s.NameOf(c.Context, "instances", instance)
	return s.PrintResult(resp, at.ID, fmt.Sprintf("Attached %s %s to instance %s as %s (attachment %s).", what, volume, instance, at.Device, at.ID))
}

func attachmentAfter(ctx context.Context, s *session.Session, resp session.Response) (api.Attachment, session.Response, error) {
	var at api.Attachment
	if err := resp.Decode("attachment", &at); err != nil {
		return at, resp, err
	}
	now, shown, err := session.ShowRetrying(ctx, s, routes.ShowAttachment, at.ID)
	if err != nil {
		return at, resp, err
	}
	return *now, resp.With("attachment", shown.Members["attachment"]), nil
}

func volumeDetach(c *cli.Context, s *session.Session) error {
	volume, instance := c.Args().Get(0), c.Args().Get(1)
	in := api.VolumeDetach{Instance: instance, Force: c.Bool("force")}
	resp, finished, err := session.Perform(c.Context, s, routes.DetachVolume, in, volume)
	if err != nil || !finished {
		return err
	}
	volume, instance = s.NameOf(c.Context, "volumes", volume), s.NameOf(c.Context, "instances", instance)
	var at api.Attachment
	if err := resp.Decode("attachment", &at); err != nil {
		return err
	}
	return s.PrintResult(resp, at.ID, fmt.Sprintf("Detached volume %s from instance %s.", volume, instance))
}
