// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func opCommand() *cli.Command {
	return &cli.Command{
		Name:  "op",
		Usage: "operations that take long: list, show and follow them",
		Description: "--no-wait prints the id of the operation that a command began. At a daemon's socket you see all\n" +
			"operations of its host; at the registry's, the operations that were requested there.",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the operations of a host that are not finished", Action: withSession(opList),
				Flags: []cli.Flag{hostFlag("the operations of `HOST`"), filterStatus([]string{"running", "undoing", "needs_operator"})},
			},
			{Name: "show", Usage: "show one operation", ArgsUsage: "OP", Action: withSession(opShow)},
			{
				Name: "watch", Usage: "follow one operation to its end", ArgsUsage: "OP", Action: withSession(opWatch),
				Description: "The exit status is the exit status of the operation. Ctrl-C ends this command, not the operation.",
			},
		},
	}
}

func opList(c *cli.Context, s *session.Session) error {
	host, err := requestedHost(c, s)
	if err != nil {
		return err
	}
	ops, resp, err := session.List(c.Context, s, routes.ListOps.With("host", host))
	if err != nil {
		return explainHostChoice(err)
	}
	ops, resp, err = filterList(ops, resp, "ops", func(o api.Op) bool { return matches(c, "status", o.State) })
	if err != nil {
		return err
	}
	slices.SortStableFunc(ops, func(a, b api.Op) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), a.CreatedAt.Compare(b.CreatedAt))
	})
	t := render.Table{Header: []string{"ID", "KIND", "SUBJECT", "STATE", "SINCE"}}
	ids := make([]string, 0, len(ops))
	for i := range ops {
		o := &ops[i]
		ids = append(ids, o.ID)
		t.Add(o.ID, o.Kind, render.OrDash(o.Subject), opState(o), render.Ago(o.CreatedAt, s.Now))
	}
	return s.PrintList(resp, ids, &t, emptyText(c, "operation", "No operation runs, waits or needs an operator.", "status"))
}

func opState(o *api.Op) string {
	if o.WaitingFor == "" {
		return o.State
	}
	return o.State + ", waits for " + o.WaitingFor
}

func opShow(c *cli.Context, s *session.Session) error {
	o, resp, err := session.Show(c.Context, s, routes.ShowOp, c.Args().First())
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("id", o.ID)
	r.Add("kind", o.Kind)
	r.AddIf("subject", o.Subject)
	r.Add("state", o.State)
	r.Add("step", o.Step)
	r.Add("waiting for", o.WaitingFor)
	r.Add("migration", o.MigrationID)
	r.Add("created", render.Time(o.CreatedAt))
	if o.FinishedAt != nil {
		r.Add("finished", render.Time(*o.FinishedAt))
	}
	if o.Error != nil {
		r.Add("error", o.Error.Message)
	}
	if o.State == api.OpNeedsOperator {
		r.Add("next", o.WayOut())
	}
	return s.PrintRecord(resp, o.ID, &r)
}

func opWatch(c *cli.Context, s *session.Session) error {
	o, _, err := session.Show(c.Context, s, routes.ShowOp, c.Args().First())
	if err != nil {
		return err
	}
	resp, err := s.Await(c.Context, session.Work{Op: *o})
	if err != nil {
		return err
	}
	return s.PrintResult(resp, o.ID, fmt.Sprintf("Operation %s (%s) is done.", o.ID, o.Kind))
}
