// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/routes"
)

func volumeCommand() *cli.Command {
	return &cli.Command{
		Name:  "volume",
		Usage: "disks: create, show, change and move them",
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "create an empty volume", ArgsUsage: "NAME", Action: withSession(volumeCreate),
				UsageText:   session.Program + " volume create NAME --size SIZE [FLAGS]",
				Description: "For example: " + session.Program + " volume create db-data --size 20GiB --pool fast",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "size", Usage: "`SIZE`, for example 20GiB, 512MiB or 1073741824 (bytes)"},
					&cli.StringFlag{Name: "type", DefaultText: "the type called default", Usage: "the name or id of its `TYPE`"},
					&cli.StringFlag{Name: "pool", DefaultText: "a pool that the type allows", Usage: "put it into `POOL`"},
					formatFlag("raw"),
					&cli.BoolFlag{Name: "bootable", Usage: "an instance may boot from it"},
					hostFlag("make it on `HOST`"),
				},
			},
			{
				Name: "adopt", Usage: "make a volume of an existing image", ArgsUsage: "NAME", Action: withSession(volumeAdopt),
				UsageText: session.Program + " volume adopt NAME (--path PATH | --pool POOL [--volume-name V]) --format FORMAT [FLAGS]",
				Description: "The image is neither moved nor changed. --format is required: a guest can write any bytes into a\n" +
					"raw image, so its content does not show its format. To adopt the disks of an existing guest, use\n" +
					"'" + session.Program + " instance adopt'. A source that a move has released is refused without --force: it is\n" +
					"the older copy of that volume.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "path", Usage: "the image is the file or block device at `PATH`"},
					&cli.StringFlag{Name: "pool", Usage: "the image is in `POOL`"},
					&cli.StringFlag{Name: "volume-name", DefaultText: "NAME", Usage: "the image has the name `V` in the pool"},
					formatFlag(""),
					&cli.StringFlag{Name: "type", DefaultText: "the type called default", Usage: "the name or id of its `TYPE`"},
					&cli.BoolFlag{Name: "bootable", Usage: "an instance may boot from it"},
					&cli.BoolFlag{Name: "force", Usage: "also adopt an image that a move has released, the older copy of another volume"},
					hostFlag("the image is on `HOST`"),
				},
			},
			{Name: "list", Usage: "list volumes", Action: withSession(volumeList), Flags: append(filterFlags("host", "pool"), filterStatus(api.VolumeStatus("").Values()))},
			{Name: "show", Usage: "show one volume with its attachments", ArgsUsage: "VOLUME", Action: withSession(volumeShow)},
			{
				Name: "set", Usage: "change a volume", ArgsUsage: "VOLUME", Action: withSession(volumeSet),
				Description: "Only the given properties change.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "name", Usage: "give it the name `NAME`"},
					&cli.BoolFlag{Name: "bootable", Usage: "may an instance boot from it: --bootable or --bootable=false"},
					&cli.StringFlag{Name: "identity", Usage: "you have put the data of the volume on another device, which has its path now: the `IDENTITY` in the refusal of that device"},
				},
			},
			volumeResizeCommand(),
			volumeSetSizeCommand(),
			{
				Name: "delete", Usage: "delete a volume that is not attached, and its bytes", ArgsUsage: "VOLUME", Action: withSession(volumeDelete),
				Description: "The data of an adopted volume is older than the volume, so delete asks first, also after a move,\n" +
					"unless you give --yes. 'volume forget' removes a volume from Volferry and keeps its image.\n" +
					"Volferry does not remove the bytes of an NBD export, an RBD image and a device in no pool: the\n" +
					"output says so.",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "force", Usage: "also delete a volume after an interrupted creation or deletion (creating, deleting, error)"},
					&cli.BoolFlag{Name: flagYes, Usage: "do not ask whether the data of an adopted volume may be deleted"},
				},
			},
			{
				Name: "forget", Usage: "stop managing a volume that is not attached; its image stays", ArgsUsage: "VOLUME", Action: withSession(volumeForget),
				Description: "The reverse of adopt: nothing is deleted, and the image can be adopted again.",
			},
			volumeAttachCommand(),
			volumeDetachCommand(),
			volumeMigrateCommand(),
			volumeRetypeCommand(),
			{
				Name: "which", Usage: "show the copy of a volume that has every write", ArgsUsage: "VOLUME", Action: withSession(volumeWhich),
				Description: "Asks the registry (the permissions), the journal (the past operations) and QEMU (the current\n" +
					"state) for the chain of images that holds every acknowledged write, top first, and compares the\n" +
					"answers. It changes nothing. The exit status is 7 if no chain is known to have every write, and 4\n" +
					"if one is known but the answers do not agree.",
			},
		},
	}
}

func formatFlag(standard string) cli.Flag {
	return &cli.StringFlag{Name: "format", DefaultText: standard, Usage: "`FORMAT` of the image, raw or qcow2", Action: cmdline.CheckWord("format")}
}

func volumeMigrateCommand() *cli.Command {
	return &cli.Command{
		Name: "migrate", Usage: "move a volume's data, also while its guest runs", ArgsUsage: "VOLUME", Action: withSession(volumeMigrate),
		UsageText: session.Program + " volume migrate VOLUME (--to-pool POOL | --to-path PATH) [FLAGS]",
		Description: "Freezes the source under a local overlay, copies it, checks the copy, and switches the guest to\n" +
			"the copy; the guest can write all the time and keeps its device, serial and volume id. The volume\n" +
			"may belong to a running, paused or stopped instance, or to none. 'migration start', 'copy' and\n" +
			"'complete' make the same move in single steps. A volume with several attachments needs\n" +
			"--live-shared, or --pause-all where --live-shared is not possible: both first show for how long\n" +
			"the guests will be paused, and ask you.\n\n" +
			"For example: " + session.Program + " volume migrate db-data --to-pool fast --bandwidth 100MiB/s",
		Flags: append(append(targetFlags(), pauseFlags()...), dryRunFlag()),
	}
}

func volumeSet(c *cli.Context, s *session.Session) error {
	var in api.VolumeUpdate
	if c.IsSet("name") {
		in.Name = new(c.String("name"))
	}
	if c.IsSet("bootable") {
		in.Bootable = new(c.Bool("bootable"))
	}
	if c.IsSet("identity") {
		in.Identity = new(c.String("identity"))
	}
	if in == (api.VolumeUpdate{}) {
		return cmdline.Usagef("volume set: nothing to change: give --name, --bootable or --identity")
	}
	v, resp, err := session.Change(c.Context, s, routes.UpdateVolume, in, c.Args().First())
	if err != nil {
		return err
	}
	return s.PrintResult(resp, v.ID, fmt.Sprintf("Changed volume %s (%s).", v.Name, v.ID))
}

func volumeDelete(c *cli.Context, s *session.Session) error {
	name := c.Args().First()
	unasked := c.Bool(flagYes) || c.Bool("force")
	v, _, err := session.Show(c.Context, s, routes.ShowVolume, name)
	switch {
	case err != nil && unasked:
		v = &api.Volume{} // the deletion itself reports whether it is possible
	case err != nil:
		return err
	case unasked:
	case v.MigrationID != "", len(v.Attachments) > 0:
		return refuseDelete(v)
	case v.Adopted:
		if err := confirmDelete(c, s, v); err != nil {
			return err
		}
	}
	resp, finished, err := session.Perform(c.Context, s, routes.DeleteVolume.With("force", boolParam(c.Bool("force"))), routes.None{}, name)
	if err != nil || !finished {
		return err
	}
	done := fmt.Sprintf("Deleted volume %s.", resp.NameIn("volume", name))
	if v.Status == api.VolumeAvailable && keptByDelete(v.Location) == "" {
		done = fmt.Sprintf("Deleted volume %s with its image %s, %s.", resp.NameIn("volume", name), v.Location.Path, humanize.Bytes(v.SizeBytes))
	}
	if err := s.PrintResult(resp, name, done); err != nil || s.JSON || s.Quiet {
		return err
	}
	if kind := keptByDelete(v.Location); kind != "" {
		s.Say("Its data was not deleted: %s is %s, which Volferry does not remove.", v.Location.Path, kind)
	}
	left := listLeft(c.Context, s, volumeHosts(*v), v.ID)
	for _, line := range releasedLines(left) {
		s.Say("Not deleted with it: %s.", line)
	}
	for i := range left.known {
		if r := &left.known[i]; r.Blocked == "" && !r.Written && r.RunBy == "" {
			s.Say("Delete %s too: %s", r.Location.Path, deleteSourceCommand(r.MigrationID))
		}
	}
	return nil
}

func refuseDelete(v *api.Volume) error {
	if v.MigrationID != "" {
		return api.Errorf(api.CodeMigrationActive, "cannot delete volume %s: migration %s is moving it; complete or cancel that first", v.Name, v.MigrationID)
	}
	a := v.Attachments[0]
	return api.Errorf(api.CodeVolumeInUse, "cannot delete volume %s: it is attached to instance %s as %s; detach it first", v.Name, cmp.Or(a.InstanceName, a.InstanceID), a.Device)
}

// confirmDelete asks the user before an adopted volume, also a moved one, is deleted with its
// data, which is older than the volume.
func confirmDelete(c *cli.Context, s *session.Session, v *api.Volume) error {
	if keptByDelete(v.Location) != "" {
		return nil // the data stays
	}
	return confirm(c, s, fmt.Sprintf("Volume %s was adopted: its data is older than the volume. Delete the volume with its image %s?", v.Name, v.Location.Path),
		fmt.Sprintf("volume %s was adopted, and its image %s would be deleted: give --yes where there is no terminal, or use 'volume forget', which keeps the image", v.Name, v.Location.Path))
}

// keptByDelete describes an image that stays when its volume is deleted, or "": a device is
// deleted only if it is in a pool, an image on the network never.
func keptByDelete(l api.Location) string {
	switch kind := medium.Of(l.Path); {
	case !kind.Deletable:
		return kind.Name
	case l.Pool == "" && strings.HasPrefix(l.Path, "/dev/"):
		return "a device in no pool"
	}
	return ""
}

func volumeForget(c *cli.Context, s *session.Session) error {
	name := c.Args().First()
	resp, finished, err := session.Perform(c.Context, s, routes.ForgetVolume, api.VolumeForget{}, name)
	if err != nil || !finished {
		return err
	}
	return s.PrintResult(resp, name, fmt.Sprintf("Forgot volume %s; its image is untouched.", resp.NameIn("volume", name)))
}

func volumeMigrate(c *cli.Context, s *session.Session) error {
	target, err := readTarget(c)
	if err != nil {
		return err
	}
	target.PauseAll = c.Bool("pause-all")
	if err := readLive(c, &target); err != nil {
		return err
	}
	switch {
	case c.Bool("dry-run"):
		return showPlan(c, s, target)
	case target.PauseAll, target.Method == api.MethodLive:
		if err := confirmPause(c, s, target); err != nil {
			return err
		}
	case c.Bool(flagYes) && !target.Overwrite:
		return cmdline.Usagef("%s--yes goes with --to-path, --pause-all and --live-shared only", cmdline.Prefix(c))
	}
	return moveTo(c, s, routes.MigrateVolume, target)
}
