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
		Name: "attach", Usage: "attach a volume to an instance, also while it runs", ArgsUsage: "VOLUME INSTANCE", Action: withSession(volumeAttach),
		UsageText: session.Program + " volume attach VOLUME INSTANCE [--device vdb] [--mode rw|ro]\n       " + session.Program + " volume attach VOLUME INSTANCE --root",
		Description: "A volume has one attachment, unless its type is multiattach: then instances, also on several\n" +
			"hosts, share it, and the software in their guests must coordinate the writes.\n\n" +
			"With --root the instance boots from the volume, which replaces the root volume that was detached.\n" +
			"The instance has to be stopped or shelved_offloaded; it cannot start without a root volume.\n\n" +
			"A volume that was attached to the instance before gets its previous disk: device, limits, cache,\n" +
			"queues, serial and all other parts of the definition. --default-settings makes it a new disk.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "device", DefaultText: "the next free device", Usage: "as `DEVICE` of the instance, for example vdb"},
			&cli.BoolFlag{Name: "root", Usage: "as its root volume, in the slot that is empty"},
			&cli.BoolFlag{Name: "default-settings", Usage: "as a new disk, without its previous settings at the instance"},
			&cli.StringFlag{Name: "mode", Value: string(api.ModeRW), DefaultText: "rw", Usage: "`MODE`: rw, or ro for a guest that may only read", Action: cmdline.CheckWord("mode")},
		},
	}
}

func volumeDetachCommand() *cli.Command {
	return &cli.Command{
		Name: "detach", Usage: "detach a volume from an instance, also while it runs", ArgsUsage: "VOLUME INSTANCE", Action: withSession(volumeDetach),
		Description: "The command asks a running guest to release the disk, and waits for that. If the guest does not\n" +
			"release the disk, nothing changes: unmount the disk in the guest, or stop the instance, and try\n" +
			"again. A root volume can be detached only from a stopped or shelved_offloaded instance, which\n" +
			"does not start until another root volume is attached.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "ignore the state of the attachment; refused nevertheless if the guest has the disk"}},
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
