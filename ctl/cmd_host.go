// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
)

func hostCommand() *cli.Command {
	return &cli.Command{
		Name:  "host",
		Usage: "hypervisors that the registry knows",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list hosts", Action: withSession(hostList)},
			{Name: "show", Usage: "show one host", ArgsUsage: "HOST", Action: withSession(hostShow)},
		},
	}
}

func hostList(c *cli.Context, s *session) error {
	hosts, a, err := list[api.Host](c.Context, s, v1("hosts"), "hosts")
	if err != nil {
		return err
	}
	t := render.Table{Header: []string{"NAME", "ID", "STATUS", "VERSION", "LAST SEEN"}}
	ids := make([]string, 0, len(hosts))
	for _, h := range hosts {
		ids = append(ids, h.ID)
		t.Add(h.Name, h.ID, h.Status, h.Version, ago(h.LastSeenAt, s.now))
	}
	return s.printList(a, ids, &t, "No host yet: a daemon registers its host when it starts.")
}

func hostShow(c *cli.Context, s *session) error {
	h, a, err := show[api.Host](c.Context, s, v1("hosts", c.Args().First()), "host")
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("id", h.ID)
	r.Add("name", h.Name)
	r.Add("status", h.Status)
	r.Add("version", h.Version)
	r.Add("epoch", strconv.FormatInt(h.Epoch, 10))
	r.Add("last seen", timeOrDash(h.LastSeenAt))
	r.Add("registered", render.Time(h.CreatedAt))
	return s.printRecord(a, h.ID, &r)
}
