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

func volumeList(c *cli.Context, s *session.Session) error {
	volumes, resp, err := session.List(c.Context, s, routes.ListVolumes)
	if err != nil {
		return err
	}
	volumes, resp, err = filterList(volumes, resp, "volumes", func(v api.Volume) bool {
		return matches(c, "host", volumeHosts(v)...) && matches(c, "pool", v.Location.Pool) && matches(c, "status", string(v.Status))
	})
	if err != nil {
		return err
	}
	if err := checkHost(c, s, len(volumes)); err != nil {
		return err
	}
	if pool := c.String("pool"); pool != "" && len(volumes) == 0 {
		if err := checkPool(c.Context, s, pool); err != nil {
			return err
		}
	}
	instances := session.Names(c.Context, s, "instances")
	t := render.Table{Header: []string{"NAME", "ID", "STATUS", "SIZE", "TYPE", "HOST", "LOCATION", "ATTACHED TO"}}
	ids := make([]string, 0, len(volumes))
	for _, v := range volumes {
		ids = append(ids, v.ID)
		users := make([]string, 0, len(v.Attachments))
		for _, at := range v.Attachments {
			// An open move has two attachments at one instance.
			if user := session.NameOr(instances, at.InstanceID); !slices.Contains(users, user) {
				users = append(users, user)
			}
		}
		status := string(v.Status)
		if v.MigrationID != "" {
			status += ", moving"
		}
		t.Add(v.Name, v.ID, status, volumeSize(v.SizeBytes, v.Location, humanize.Bytes), v.Type, strings.Join(volumeHosts(v), ","), render.Location(v.Location), strings.Join(users, ","))
	}
	empty := emptyText(c, "volume", "No volume yet: '"+session.Program+" instance adopt DOMAIN' takes over a guest's disks, 'volume create' makes an empty one.", "host", "pool", "status")
	return s.PrintList(resp, ids, &t, empty)
}

func volumeShow(c *cli.Context, s *session.Session) error {
	v, resp, err := session.Show(c.Context, s, routes.ShowVolume, c.Args().First())
	if err != nil {
		return err
	}
	instances := session.Names(c.Context, s, "instances")
	var r render.Record
	r.Add("id", v.ID)
	r.Add("name", v.Name)
	r.Add("status", string(v.Status))
	r.Add("size", volumeSize(v.SizeBytes, v.Location, humanize.ExactBytes))
	if v.SizeChangedAt != nil {
		r.Add("size since", render.Time(*v.SizeChangedAt))
	}
	r.Add("type", v.Type)
	r.Add("multiattach", render.YesNo(v.Multiattach))
	r.Add("bootable", render.YesNo(v.Bootable))
	r.Add("host", v.Host)
	addLocation(&r, "", v.Location)
	lines := make([]string, 0, len(v.Attachments))
	for _, at := range v.Attachments {
		lines = append(lines, fmt.Sprintf("%s  %s of instance %s, on %s, %s, %s", at.ID, at.Device, session.NameOr(instances, at.InstanceID), hostOrNone(at.Host), at.Mode, at.State))
	}
	r.Add("attachments", lines...)
	r.Add("migration", v.MigrationID)
	if hosts := volumeHosts(*v); len(hosts) > 0 && !s.Quiet && !s.JSON {
		left := listLeft(c.Context, s, hosts, v.ID)
		left.known = slices.DeleteFunc(left.known, func(r api.ReleasedSource) bool {
			return r.Location.Path == v.Location.Path && !r.Unrecorded // a move has ended since v was read
		})
		r.Add("released", releasedLines(left)...)
	}
	r.Add("generation", strconv.FormatInt(v.Generation, 10))
	r.Add("created", render.Time(v.CreatedAt))
	r.Add("updated", render.Time(v.UpdatedAt))
	return s.PrintRecord(resp, v.ID, &r)
}

func volumeWhich(c *cli.Context, s *session.Session) error {
	w, resp, err := session.Show(c.Context, s, routes.ShowWhich, c.Args().First())
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("volume", nameWithID(session.Names(c.Context, s, "volumes"), w.VolumeID))
	r.Add("agree", render.YesNo(w.Agree))
	r.Add("authoritative", chainLines(w.Authoritative)...)
	if w.Registry != nil {
		r.Add("registry", chainLines([]api.Location{*w.Registry})...)
	} else {
		r.Add("registry")
	}
	r.Add("journal", chainLines(w.Journal)...)
	r.Add("QEMU, live", chainLines(w.Live)...)
	r.Add("libvirt, at rest", chainLines(w.Persistent)...)
	r.AddIf("explanation", w.Explanation)
	for _, l := range w.Written {
		r.Add("written since", l.Path+", which a move of the volume has released, was written since, and may have data that the volume lacks; compare the two before you delete it")
	}
	if err := s.PrintRecord(resp, w.VolumeID, &r); err != nil {
		return err
	}
	if w.Authoritative == nil {
		return api.Errorf(api.CodeNeedsOperator, "cannot tell which copy of volume %s has every write: %s",
			s.NameOf(c.Context, "volumes", c.Args().First()), cmp.Or(w.Explanation, "registry, journal and hypervisor disagree"))
	}
	if !w.Agree {
		return api.Errorf(api.CodeChainChanged, "registry, journal and hypervisor do not agree on volume %s; the chain shown as authoritative has every write: %s",
			s.NameOf(c.Context, "volumes", c.Args().First()), cmp.Or(w.Explanation, "a move may be under way"))
	}
	return nil
}

func volumeSize(sizeBytes int64, l api.Location, words func(int64) string) string {
	if l.IsSlice() {
		return words(sizeBytes) + " of " + words(l.ImageBytes)
	}
	return words(sizeBytes)
}

func chainLines(images []api.Location) []string {
	lines := make([]string, 0, len(images))
	for i, l := range images {
		line := fmt.Sprintf("%s (%s, %s)", l.Path, l.Format, humanize.Bytes(l.SizeBytes))
		if i > 0 {
			line = "over " + line
		}
		lines = append(lines, line)
	}
	return lines
}
