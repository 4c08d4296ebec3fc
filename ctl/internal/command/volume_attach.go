// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
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

func volumeRetypeCommand() *cli.Command {
	move := targetFlags()
	return &cli.Command{
		Name: "retype", Usage: "give a volume another type", ArgsUsage: "VOLUME", Action: withSession(volumeRetype),
		UsageText: session.Program + " volume retype VOLUME --type TYPE [--migration-policy on-demand [--bandwidth RATE] [--pace HOW] [--delete-source]]",
		Description: "If the new type does not allow the volume's pool, --migration-policy on-demand moves the volume;\n" +
			"without it the retype is refused. Whether a volume may be attached more than once cannot be\n" +
			"changed while it is attached.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "type", Usage: "the name or id of its new `TYPE`"},
			&cli.StringFlag{
				Name: "migration-policy", Value: api.RetypeNever, DefaultText: api.RetypeNever, Action: cmdline.CheckWord("migration-policy"),
				Usage: "`WHEN` to move the volume: never, or on-demand if its new type needs another pool",
			},
			cmdline.FindFlag(move, "bandwidth"), paceFlag(), cmdline.FindFlag(move, "delete-source"),
		},
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

// attachmentAfter returns the attachment of an answer as it is after the op.
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

func volumeRetype(c *cli.Context, s *session.Session) error {
	if c.String("type") == "" {
		return cmdline.Usagef("volume retype: --type is missing: give the new type, for example --type fast")
	}
	in := api.VolumeRetype{Type: c.String("type"), MigrationPolicy: c.String("migration-policy"), Pace: c.String("pace"), DeleteSource: c.Bool("delete-source")}
	if c.IsSet("bandwidth") {
		var err error
		if in.BandwidthBytesPerSecond, err = parseRate(c.String("bandwidth")); err != nil {
			return err
		}
	}
	if in.MigrationPolicy != api.RetypeOnDemand && (in.DeleteSource || in.BandwidthBytesPerSecond != 0 || in.Pace != "") {
		return cmdline.Usagef("volume retype: --bandwidth, --pace and --delete-source are of a move: give --migration-policy on-demand too")
	}
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
