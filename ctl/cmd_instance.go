// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func instanceCommand() *cli.Command {
	return &cli.Command{
		Name:  "instance",
		Usage: "libvirt domains under Volferry's care: look at them, start, stop, shelve and lock them",
		Subcommands: append([]*cli.Command{
			{Name: "list", Usage: "list instances", Action: withSession(instanceList), Flags: append(filterFlags("host"), filterStatus(api.InstanceState("").Values()))},
			{Name: "show", Usage: "show one instance with its disks", ArgsUsage: "INSTANCE", Action: withSession(instanceShow)},
			{
				Name: "adopt", Usage: "take over the disks of a libvirt domain", ArgsUsage: "[DOMAIN]", Action: withSession(instanceAdopt),
				UsageText: programName + " instance adopt (DOMAIN | --all) [--type TYPE] [--host HOST]",
				Description: "Every disk that Volferry can look after becomes a volume with one attachment. Neither the\n" +
					"domain nor its disks are touched; it may be running. To adopt again is no error. Disks that\n" +
					"are left out are named. For domains that share a disk (<shareable/> in each), give a\n" +
					"multiattach --type: the first one makes the volume, the others are attached to it.",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "adopt every domain of the host"}, typeOfAdopted(), hostFlag("take it over on `HOST`")},
			},
			{
				Name: "forget", Usage: "let go of an instance", ArgsUsage: "INSTANCE", Action: withSession(instanceForget),
				Description: "Volferry forgets the instance and its attachments. Its volumes stay, and so do the domain and\n" +
					"its images, untouched; it can be adopted again. Of one that is shelved_offloaded there is no\n" +
					"domain anywhere: what the registry has of it is all there is, and it is lost with it.",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "with-definition", Usage: "also one that is shelved_offloaded, for good"}},
			},
		}, lifecycleCommands()...),
	}
}

func instanceList(c *cli.Context, s *session) error {
	instances, a, err := list(c.Context, s, routes.ListInstances)
	if err != nil {
		return err
	}
	instances, a, err = only(instances, a, "instances", func(i api.Instance) bool {
		return fits(c, "host", i.Host) && fits(c, "status", string(i.State))
	})
	if err != nil {
		return err
	}
	fenced := s.fencedHosts(c.Context)
	t := render.Table{Header: []string{"NAME", "ID", "STATE", "HOST", "VOLUMES"}}
	ids := make([]string, 0, len(instances))
	for _, i := range instances {
		ids = append(ids, i.ID)
		t.Add(i.Name, i.ID, stateLine(&i)+lastKnown(fenced, i.Host), i.Host, fmt.Sprint(volumesOf(i)))
	}
	return s.printList(a, ids, &t, "No instance yet: '"+programName+" instance adopt DOMAIN' takes one over, or --all for every domain of this host.")
}

// fencedHosts are the names of the hosts that are fenced, for people. None, if that
// cannot be asked.
func (s *session) fencedHosts(ctx context.Context) map[string]bool {
	if s.json || s.quiet {
		return nil
	}
	hosts, _, err := list(ctx, s, routes.ListHosts)
	if err != nil {
		return nil
	}
	fenced := map[string]bool{}
	for _, h := range hosts {
		fenced[h.Name] = h.Status == api.HostFenced
	}
	return fenced
}

// lastKnown says of the state of what a fenced host has that nobody knows it now.
func lastKnown(fenced map[string]bool, host string) string {
	if !fenced[host] {
		return ""
	}
	return " when last heard of (host is fenced)"
}

// stateLine is the state of an instance, and who keeps others from changing it.
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

func instanceShow(c *cli.Context, s *session) error {
	i, a, err := show(c.Context, s, routes.ShowInstance, c.Args().First())
	if err != nil {
		return err
	}
	volumes := names(c.Context, s, "volumes")
	var r render.Record
	r.Add("id", i.ID)
	r.Add("name", i.Name)
	r.Add("host", i.Host)
	r.Add("state", string(i.State)+lastKnown(s.fencedHosts(c.Context), i.Host))
	r.Add("locked", lockLine(i))
	r.AddIf("kept off", keptOff(i))
	r.AddIf("note", i.Note)
	disks := make([]string, 0, len(i.BlockDeviceMappings))
	for _, slot := range i.BlockDeviceMappings {
		disks = append(disks, diskLine(i, slot, volumes))
	}
	r.Add("disks", disks...)
	r.Add("adopted", render.Time(i.CreatedAt))
	r.Add("updated", render.Time(i.UpdatedAt))
	return s.printRecord(a, i.ID, &r)
}

// lockLine says whether an instance is locked, by which migration if it is one,
// and why.
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

// keptOff says of an instance that a move with all guests paused has put to rest that
// nobody starts it, and what ends that; "" of all others.
func keptOff(i *api.Instance) string {
	if i.LockedBy == "" || i.State != api.InstanceStopped {
		return ""
	}
	return fmt.Sprintf("until migration %[1]s is over, which leaves it as it was before; '%[2]s migration watch %[1]s'", i.LockedBy, programName)
}

// diskLine is a slot of an instance: what is in it, or why nothing is.
func diskLine(i *api.Instance, slot api.BlockDeviceMapping, volumes map[string]string) string {
	line := slot.Device
	if slot.BootIndex != nil {
		line += fmt.Sprintf(" (boot %d)", *slot.BootIndex)
	}
	if slot.VolumeID == nil {
		return line + "  volume -: " + whyEmpty(i, slot)
	}
	line += "  volume " + nameOr(volumes, *slot.VolumeID)
	if slot.Mode != "" { // of an older registry
		line += ", " + string(slot.Mode)
	}
	if slot.AttachmentID != nil {
		line += ", attachment " + *slot.AttachmentID
	}
	return line
}

// whyEmpty says why no volume is in a slot: there is a disk that is none, or the
// volume was detached.
func whyEmpty(i *api.Instance, slot api.BlockDeviceMapping) string {
	switch {
	case slot.Note != "":
		return slot.Note
	case api.IsRoot(slot.BootIndex):
		return fmt.Sprintf("detached, so it does not start; '%s volume attach VOLUME %s --root' gives it one", programName, i.Name)
	}
	return "detached"
}

func typeOfAdopted() cli.Flag {
	return &cli.StringFlag{Name: "type", DefaultText: "the type called default", Usage: "the name or id of their `TYPE`; a multiattach one for its <shareable/> disks, which others may have too"}
}

func instanceAdopt(c *cli.Context, s *session) error {
	in := api.InstanceAdopt{Domain: c.Args().First(), All: c.Bool("all"), Type: c.String("type")}
	if (in.Domain == "") != in.All {
		return usagef("instance adopt: give the name of one domain, or --all for every domain of the host")
	}
	host, err := s.hostAsked(c)
	if err != nil {
		return err
	}
	a, finished, err := perform(c.Context, s, routes.AdoptInstance.With("host", host), in)
	if err != nil || !finished {
		return whichHost(err)
	}
	adopted, err := adoptedInstances(a)
	if err != nil {
		return err
	}
	if s.json {
		return render.JSON(s.stdout, a.members)
	}
	for _, i := range adopted {
		if err := s.printResult(a, i.ID, fmt.Sprintf("Adopted instance %s (%s) with %s.", i.Name, i.ID, render.Count(volumesOf(i), "volume"))); err != nil {
			return err
		}
		s.sayLeftOut(i)
	}
	if len(adopted) == 0 {
		s.say("There was nothing to adopt.")
	}
	return nil
}

// sayLeftOut names the disks of an adopted instance that are no volumes: nothing
// protects them, and nothing here moves them.
func (s *session) sayLeftOut(i api.Instance) {
	for _, slot := range i.BlockDeviceMappings {
		if slot.Note != "" {
			s.say("Left out %s of %s: %s.", slot.Device, i.Name, slot.Note)
		}
	}
	if volumesOf(i) == 0 {
		s.say("Instance %s has no volume: there is nothing of it that could be moved, attached or detached.", i.Name)
	}
}

// adoptedInstances reads the answer to an adoption: a list, or the one
// instance that was asked for.
func adoptedInstances(a answer) ([]api.Instance, error) {
	var many []api.Instance
	if a.has("instances") {
		err := a.decode("instances", &many)
		return many, err
	}
	one := make([]api.Instance, 1)
	return one, a.decode("instance", &one[0])
}

func instanceForget(c *cli.Context, s *session) error {
	name := c.Args().First()
	inst, _, err := show(c.Context, s, routes.ShowInstance, name)
	if err != nil {
		return err
	}
	offloaded := inst.State == api.InstanceShelvedOffloaded
	if offloaded && !c.Bool("with-definition") {
		return api.Errorf(api.CodeStateForbidden, "cannot forget instance %s: no host has it, and its definition would be lost for good; unshelve it first, or give --with-definition",
			inst.Name)
	}
	a, finished, err := perform(c.Context, s, routes.ForgetInstance.With("with_definition", oneIf(offloaded)), routes.None{}, name)
	if err != nil || !finished {
		return err
	}
	untouched := "its domain and images are untouched"
	if offloaded {
		untouched = "its definition is gone"
	}
	return s.printResult(a, name, fmt.Sprintf("Forgot instance %s; its volumes stay, %s.", a.nameIn("instance", name), untouched))
}
