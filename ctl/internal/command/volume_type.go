// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func typeCommand() *cli.Command {
	return &cli.Command{
		Name:  "type",
		Usage: "volume types: what a volume may do and where it may live",
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "create a volume type", ArgsUsage: "NAME", Action: withSession(typeCreate),
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "multiattach", Usage: "volumes of this type may be attached more than once"},
					&cli.StringSliceFlag{Name: "pool", DefaultText: "every pool", Usage: "allow volumes in `POOL` only; repeat the flag for more pools"},
				},
			},
			{Name: "list", Usage: "list volume types", Action: withSession(typeList)},
			{Name: "show", Usage: "show one volume type", ArgsUsage: "TYPE", Action: withSession(typeShow)},
			{
				Name: "set", Usage: "change a volume type", ArgsUsage: "TYPE", Action: withSession(typeSet),
				Description: "Only the given properties change. Volumes stay where they are.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "name", Usage: "give it the name `NAME`"},
					&cli.BoolFlag{Name: "multiattach", Usage: "may volumes be attached more than once: --multiattach or --multiattach=false"},
					&cli.StringSliceFlag{Name: "pool", Usage: "allow volumes in `POOL` only, instead of the present pools; repeat the flag for more pools"},
					&cli.BoolFlag{Name: "every-pool", Usage: "allow volumes in every pool"},
				},
			},
			{Name: "delete", Usage: "delete a volume type without volumes", ArgsUsage: "TYPE", Action: withSession(typeDelete)},
		},
	}
}

func typeCreate(c *cli.Context, s *session.Session) error {
	in := api.VolumeTypeCreate{Name: c.Args().First(), Multiattach: c.Bool("multiattach"), Pools: c.StringSlice("pool")}
	resp, err := session.Send(c.Context, s, routes.CreateType, in)
	if err != nil {
		return err
	}
	return printType(s, resp, "Created")
}

func typeList(c *cli.Context, s *session.Session) error {
	types, resp, err := session.List(c.Context, s, routes.ListTypes)
	if err != nil {
		return err
	}
	t := render.Table{Header: []string{"NAME", "ID", "MULTIATTACH", "POOLS"}}
	ids := make([]string, 0, len(types))
	for _, vt := range types {
		ids = append(ids, vt.ID)
		t.Add(vt.Name, vt.ID, render.YesNo(vt.Multiattach), poolsOf(vt))
	}
	return s.PrintList(resp, ids, &t, "No volume type yet: '"+session.Program+" type create NAME' makes one.")
}

func typeShow(c *cli.Context, s *session.Session) error {
	vt, resp, err := session.Show(c.Context, s, routes.ShowType, c.Args().First())
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("id", vt.ID)
	r.Add("name", vt.Name)
	r.Add("multiattach", render.YesNo(vt.Multiattach))
	r.Add("pools", poolsOf(*vt))
	if vt.CreatedAt.Unix() == 0 {
		r.Add("created", "with the registry")
	} else {
		r.Add("created", render.Time(vt.CreatedAt))
	}
	return s.PrintRecord(resp, vt.ID, &r)
}

func typeSet(c *cli.Context, s *session.Session) error {
	var in api.VolumeTypeUpdate
	if c.IsSet("name") {
		in.Name = new(c.String("name"))
	}
	if c.IsSet("multiattach") {
		in.Multiattach = new(c.Bool("multiattach"))
	}
	switch {
	case c.IsSet("pool") && c.Bool("every-pool"):
		return cmdline.Usagef("type set: --pool and --every-pool exclude each other: give one")
	case c.IsSet("pool"):
		in.Pools = new(c.StringSlice("pool"))
	case c.Bool("every-pool"):
		in.Pools = &[]string{}
	}
	if in == (api.VolumeTypeUpdate{}) {
		return cmdline.Usagef("type set: nothing to change: give --name, --multiattach, --pool or --every-pool")
	}
	resp, err := session.Send(c.Context, s, routes.UpdateType, in, c.Args().First())
	if err != nil {
		return err
	}
	return printType(s, resp, "Changed")
}

func typeDelete(c *cli.Context, s *session.Session) error {
	name := c.Args().First()
	resp, err := session.Send(c.Context, s, routes.DeleteType, routes.None{}, name)
	if err != nil {
		return err
	}
	return s.PrintResult(resp, name, fmt.Sprintf("Deleted volume type %s.", resp.NameIn("type", name)))
}

func printType(s *session.Session, resp session.Response, verb string) error {
	var vt api.VolumeType
	if err := resp.Decode("type", &vt); err != nil {
		return err
	}
	return s.PrintResult(resp, vt.ID, fmt.Sprintf("%s volume type %s (%s).", verb, vt.Name, vt.ID))
}

func poolsOf(vt api.VolumeType) string {
	if len(vt.Pools) == 0 {
		return "every pool"
	}
	return strings.Join(vt.Pools, ", ")
}
