// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

func attachmentCommand() *cli.Command {
	return &cli.Command{
		Name:  "attachment",
		Usage: "attachments of volumes to instances",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list attachments", Action: withSession(attachmentList),
				Flags: append(filterFlags("volume", "instance", "host", "pool"), filterStatus(api.AttachmentState("").Values())),
			},
			{Name: "show", Usage: "show one attachment", ArgsUsage: "ATTACHMENT", Action: withSession(attachmentShow)},
			{
				Name: "delete", Usage: "end one attachment: detach its volume, or remove its remaining record", ArgsUsage: "ATTACHMENT", Action: withSession(attachmentDelete),
				Description: "--force ignores the state of the attachment, and changes no other. It is refused while\n" +
					"the guest has the disk, unless its host is fenced (see '" + session.Program + " host fence').",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "ignore the state of the attachment"}},
			},
		},
	}
}

func attachmentList(c *cli.Context, s *session.Session) error {
	attachments, resp, err := session.List(c.Context, s, routes.ListAttachments.With("volume", c.String("volume")).With("instance", c.String("instance")))
	if err != nil {
		return err
	}
	attachments, resp, err = filterList(attachments, resp, "attachments", func(at api.Attachment) bool {
		return matches(c, "host", at.Host) && matches(c, "pool", at.Location.Pool) && matches(c, "status", string(at.State))
	})
	if err != nil {
		return err
	}
	if err := checkHost(c, s, len(attachments)); err != nil {
		return err
	}
	volumes, instances := session.Names(c.Context, s, "volumes"), session.Names(c.Context, s, "instances")
	slices.SortStableFunc(attachments, func(a, b api.Attachment) int {
		return cmp.Or(strings.Compare(session.NameOr(volumes, a.VolumeID), session.NameOr(volumes, b.VolumeID)),
			strings.Compare(session.NameOr(instances, a.InstanceID), session.NameOr(instances, b.InstanceID)))
	})
	t := render.Table{Header: []string{"ID", "VOLUME", "INSTANCE", "DEVICE", "BOOT", "MODE", "STATE", "HOST", "LOCATION"}}
	ids := make([]string, 0, len(attachments))
	for _, at := range attachments {
		ids = append(ids, at.ID)
		t.Add(at.ID, session.NameOr(volumes, at.VolumeID), session.NameOr(instances, at.InstanceID), at.Device, bootIndex(at.BootIndex),
			string(at.Mode), string(at.State), at.Host, render.Location(at.Location))
	}
	return s.PrintList(resp, ids, &t, emptyText(c, "attachment", "No attachment here.", "volume", "instance", "host", "pool", "status"))
}

func attachmentShow(c *cli.Context, s *session.Session) error {
	at, resp, err := session.Show(c.Context, s, routes.ShowAttachment, c.Args().First())
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("id", at.ID)
	r.Add("volume", nameWithID(session.Names(c.Context, s, "volumes"), at.VolumeID))
	r.Add("instance", nameWithID(session.Names(c.Context, s, "instances"), at.InstanceID))
	r.Add("host", at.Host)
	r.Add("state", string(at.State))
	r.Add("mode", string(at.Mode))
	r.Add("device", at.Device)
	r.Add("boot index", bootIndex(at.BootIndex))
	r.Add("size", humanize.ExactBytes(at.Location.SizeBytes))
	addLocation(&r, "", at.Location)
	r.Add("created", render.Time(at.CreatedAt))
	r.Add("updated", render.Time(at.UpdatedAt))
	return s.PrintRecord(resp, at.ID, &r)
}

func bootIndex(i *int) string {
	if i == nil {
		return "-"
	}
	return strconv.Itoa(*i)
}

func attachmentDelete(c *cli.Context, s *session.Session) error {
	resp, finished, err := session.Perform(c.Context, s, routes.DeleteAttachment.With("force", boolParam(c.Bool("force"))), routes.None{}, c.Args().First())
	if err != nil || !finished {
		return err
	}
	var at api.Attachment
	if err := resp.Decode("attachment", &at); err != nil {
		return err
	}
	volume, instance := session.NameOr(session.Names(c.Context, s, "volumes"), at.VolumeID), session.NameOr(session.Names(c.Context, s, "instances"), at.InstanceID)
	return s.PrintResult(resp, at.ID, fmt.Sprintf("Deleted attachment %s: volume %s is no longer attached to instance %s.", at.ID, volume, instance))
}
