// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

func instanceCommand() *cli.Command {
	return &cli.Command{
		Name:  "instance",
		Usage: "libvirt domains that Volferry manages: show, start, stop, shelve and lock them",
		Subcommands: append([]*cli.Command{
			{Name: "list", Usage: "list instances", Action: withSession(instanceList), Flags: append(filterFlags("host"), filterStatus(api.InstanceState("").Values()))},
			{Name: "show", Usage: "show one instance with its disks", ArgsUsage: "INSTANCE", Action: withSession(instanceShow)},
			{
				Name: "adopt", Usage: "take over the disks of a libvirt domain", ArgsUsage: "[DOMAIN]", Action: withSession(instanceAdopt),
				UsageText: session.Program + " instance adopt (DOMAIN | --all) [--type TYPE] [--force] [--host HOST]",
				Description: "Every disk that Volferry can manage becomes a volume with one attachment. The domain and its\n" +
					"disks are not changed; the domain may run. It is no error to adopt a domain again. The output\n" +
					"names the disks that are left out. For domains that share a disk (<shareable/> in each), give a\n" +
					"multiattach --type: the first domain makes the volume, and the other domains are attached to it.\n\n" +
					"A disk on a source that a move has released is refused: the image is the older copy of that\n" +
					"volume. With --force the image becomes a new volume.",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "all", Usage: "adopt every domain of the host"}, adoptTypeFlag(),
					&cli.BoolFlag{Name: "force", Usage: "also adopt an image that a move has released"}, hostFlag("adopt it on `HOST`"),
				},
			},
			{
				Name: "forget", Usage: "stop managing an instance; its domain and volumes stay", ArgsUsage: "INSTANCE", Action: withSession(instanceForget),
				Description: "Volferry forgets the instance and its attachments. The volumes, the domain and the images stay\n" +
					"unchanged; the domain can be adopted again. A shelved_offloaded instance has no domain on any\n" +
					"host: the registry has the only copy of its definition, which is then lost.\n\n" +
					"The command is refused if the disks of the domain are not on the images of its volumes, for\n" +
					"example after an older definition was restored: without the instance, no record shows which image\n" +
					"is the right one.",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "with-definition", Usage: "also forget an instance that is shelved_offloaded, with its definition"},
					&cli.BoolFlag{Name: "force", Usage: "also forget an instance with disks that are not on the images of its volumes"},
				},
			},
			instanceMigrateCommand(),
		}, lifecycleCommands()...),
	}
}

func instanceList(c *cli.Context, s *session.Session) error {
	instances, resp, err := session.List(c.Context, s, routes.ListInstances)
	if err != nil {
		return err
	}
	instances, resp, err = filterList(instances, resp, "instances", func(i api.Instance) bool {
		return matches(c, "host", i.Host) && matches(c, "status", string(i.State))
	})
	if err != nil {
		return err
	}
	if err := checkHost(c, s, len(instances)); err != nil {
		return err
	}
	silent := silentHosts(c.Context, s)
	t := render.Table{Header: []string{"NAME", "ID", "STATE", "HOST", "VOLUMES"}}
	ids := make([]string, 0, len(instances))
	for _, i := range instances {
		ids = append(ids, i.ID)
		t.Add(i.Name, i.ID, stateLine(&i)+silent[i.Host], i.Host, fmt.Sprint(volumesOf(i)))
	}
	empty := emptyText(c, "instance", "No instance yet: '"+session.Program+" instance adopt DOMAIN' adopts a domain, and --all every domain of this host.", "host", "status")
	return s.PrintList(resp, ids, &t, empty)
}

// silentHosts returns the age of the instances' states of hosts that do not report, by name. It
// returns nil for a script, and if the hosts cannot be read.
func silentHosts(ctx context.Context, s *session.Session) map[string]string {
	if s.JSON || s.Quiet {
		return nil
	}
	hosts, _, err := session.List(ctx, s, routes.ListHosts)
	if err != nil {
		return nil
	}
	silent := map[string]string{}
	for _, h := range hosts {
		switch h.Status {
		case api.HostFenced:
			silent[h.Name] = " at its last report (host is fenced)"
		case api.HostSuspect:
			silent[h.Name] = " " + cmp.Or(agoOrDash(h.LastSeenAt, s.Now), "at its last report") + " (host is silent)"
		}
	}
	return silent
}

func stateLine(i *api.Instance) string {
	switch {
	case i.LockedBy != "":
		return fmt.Sprintf("%s, held by migration %.8s", i.State, i.LockedBy)
	case i.Locked:
		return string(i.State) + ", locked"
	}
	return string(i.State)
}

func volumesOf(i api.Instance) int {
	n := 0
	for _, slot := range i.BlockDeviceMappings {
		if slot.VolumeID != nil {
			n++
		}
	}
	return n
}

func instanceShow(c *cli.Context, s *session.Session) error {
	i, resp, err := session.Show(c.Context, s, routes.ShowInstance, c.Args().First())
	if err != nil {
		return err
	}
	volumes := session.Names(c.Context, s, "volumes")
	var r render.Record
	r.Add("id", i.ID)
	r.Add("name", i.Name)
	r.Add("host", i.Host)
	r.Add("state", string(i.State)+silentHosts(c.Context, s)[i.Host])
	r.Add("locked", lockLine(i))
	r.AddIf("kept off", whyKeptOff(i))
	r.AddIf("note", i.Note)
	disks := make([]string, 0, len(i.BlockDeviceMappings))
	for _, slot := range i.BlockDeviceMappings {
		disks = append(disks, diskLine(i, slot, volumes))
	}
	r.Add("disks", disks...)
	r.Add("adopted", render.Time(i.CreatedAt))
	r.Add("updated", render.Time(i.UpdatedAt))
	return s.PrintRecord(resp, i.ID, &r)
}

func lockLine(i *api.Instance) string {
	if !i.Locked {
		return render.YesNo(false)
	}
	line := render.YesNo(true)
	if i.LockedBy != "" {
		line += ", by migration " + i.LockedBy
	}
	return line + ": " + render.OrDash(i.LockReason)
}

// whyKeptOff returns why, and until when, an instance cannot be started: a move with all guests
// paused has saved it. For other instances it returns "".
func whyKeptOff(i *api.Instance) string {
	if i.LockedBy == "" || i.State != api.InstanceStopped {
		return ""
	}
	return fmt.Sprintf("until migration %s ends, which restores the state of before; `%s`", i.LockedBy, shell.Line(session.Program, "migration", "watch", i.LockedBy))
}

func diskLine(i *api.Instance, slot api.BlockDeviceMapping, volumes map[string]string) string {
	line := slot.Device
	if slot.BootIndex != nil {
		line += fmt.Sprintf(" (boot %d)", *slot.BootIndex)
	}
	if slot.VolumeID == nil {
		return line + "  volume -: " + whySlotEmpty(i, slot)
	}
	line += "  volume " + session.NameOr(volumes, *slot.VolumeID)
	line += ", " + string(slot.Mode)
	if slot.AttachmentID != nil {
		line += ", attachment " + *slot.AttachmentID
	}
	return line
}

func whySlotEmpty(i *api.Instance, slot api.BlockDeviceMapping) string {
	switch {
	case slot.Note != "":
		return slot.Note
	case api.IsRoot(slot.BootIndex):
		return fmt.Sprintf("detached, so the instance does not start; `%s` attaches a root volume", shell.Line(session.Program, "volume", "attach", "VOLUME", i.Name, "--root"))
	}
	return "detached"
}

func adoptTypeFlag() cli.Flag {
	return &cli.StringFlag{Name: "type", DefaultText: "the type called default", Usage: "the name or id of the volumes' `TYPE`; a multiattach type for <shareable/> disks, which other domains may have too"}
}

func instanceAdopt(c *cli.Context, s *session.Session) error {
	in := api.InstanceAdopt{Domain: c.Args().First(), All: c.Bool("all"), Type: c.String("type"), Force: c.Bool("force")}
	if (in.Domain == "") != in.All {
		return cmdline.Usagef("instance adopt: give the name of one domain, or --all for every domain of the host")
	}
	host, err := requestedHost(c, s)
	if err != nil {
		return err
	}
	resp, finished, err := session.Perform(c.Context, s, routes.AdoptInstance.With("host", host), in)
	if err != nil || !finished {
		return explainHostChoice(err)
	}
	adopted, err := adoptedInstances(resp)
	if err != nil {
		return err
	}
	if s.JSON {
		return render.JSON(s.Stdout, resp.Members)
	}
	already := alreadyAdopted(resp)
	for _, i := range adopted {
		done := fmt.Sprintf("Adopted instance %s (%s) with %s.", i.Name, i.ID, humanize.Count(volumesOf(i), "volume"))
		if slices.Contains(already, i.Name) {
			done = fmt.Sprintf("Instance %s (%s) is adopted already, with %s; nothing was changed.", i.Name, i.ID, humanize.Count(volumesOf(i), "volume"))
		}
		if err := s.PrintResult(resp, i.ID, done); err != nil {
			return err
		}
		printLeftOut(s, i)
	}
	if len(adopted) == 0 {
		s.Say("There was nothing to adopt.")
	}
	return nil
}

// printLeftOut prints the disks that did not become volumes.
func printLeftOut(s *session.Session, i api.Instance) {
	for _, slot := range i.BlockDeviceMappings {
		if slot.Note != "" {
			s.Say("Left out %s of %s: %s.", slot.Device, i.Name, slot.Note)
		}
	}
	if volumesOf(i) == 0 {
		s.Say("Instance %s has no volume that could be moved, attached or detached.", i.Name)
	}
}

// adoptedInstances reads the answer to an adoption: a list, or the named instance.
func adoptedInstances(resp session.Response) ([]api.Instance, error) {
	var many []api.Instance
	if resp.Has("instances") {
		err := resp.Decode("instances", &many)
		return many, err
	}
	one := make([]api.Instance, 1)
	return one, resp.Decode("instance", &one[0])
}

func alreadyAdopted(resp session.Response) (names []string) {
	if resp.Has("already_adopted") && resp.Decode("already_adopted", &names) != nil {
		return nil
	}
	return names
}

func instanceForget(c *cli.Context, s *session.Session) error {
	name := c.Args().First()
	inst, _, err := session.Show(c.Context, s, routes.ShowInstance, name)
	if err != nil {
		return err
	}
	offloaded := inst.State == api.InstanceShelvedOffloaded
	if offloaded && !c.Bool("with-definition") {
		return api.Errorf(api.CodeStateForbidden, "cannot forget instance %s: no host has it, and its definition would be lost for good; unshelve it first, or give --with-definition",
			inst.Name)
	}
	route := routes.ForgetInstance.With("with_definition", boolParam(offloaded)).With("force", boolParam(c.Bool("force")))
	resp, finished, err := session.Perform(c.Context, s, route, routes.None{}, name)
	if err != nil || !finished {
		return err
	}
	untouched := "its domain and images are untouched"
	if offloaded {
		untouched = "its definition is gone"
	}
	return s.PrintResult(resp, name, fmt.Sprintf("Forgot instance %s; its volumes stay, %s.", resp.NameIn("instance", name), untouched))
}
