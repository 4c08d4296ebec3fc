// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

const policies = "multiattach: a volume of a multiattach type may be attached more than once. multiattach_bootable:\n" +
	"a volume that instances boot from may be attached more than once, too. Existing attachments stay."

func policyCommand() *cli.Command {
	return &cli.Command{
		Name:        "policy",
		Usage:       "rules of the whole site that are on or off",
		Description: policies,
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the policies", Action: withSession(policyList)},
			{
				Name: "set", Usage: "turn a policy on or off", ArgsUsage: "POLICY ON_OR_OFF", Action: withSession(policySet),
				UsageText: session.Program + " policy set POLICY on|off", Description: policies,
			},
		},
	}
}

func policyList(c *cli.Context, s *session.Session) error {
	policies, resp, err := session.List(c.Context, s, routes.ListPolicies)
	if err != nil {
		return err
	}
	t := render.Table{Header: []string{"NAME", "ENABLED", "MEANING"}}
	named := make([]string, 0, len(policies))
	for _, p := range policies {
		named = append(named, p.Name)
		t.Add(p.Name, cmdline.OnOff(p.Enabled), p.Description)
	}
	return s.PrintList(resp, named, &t, "No policy.")
}

func policySet(c *cli.Context, s *session.Session) error {
	name, word := c.Args().Get(0), c.Args().Get(1)
	if err := cmdline.CheckOneOf(cmdline.SwitchWords, word); err != nil {
		return cmdline.Usagef("policy set: %w", err)
	}
	resp, err := session.Send(c.Context, s, routes.SetPolicy, api.PolicyUpdate{Enabled: word == cmdline.OnOff(true)}, name)
	if err != nil {
		return err
	}
	return s.PrintResult(resp, name, fmt.Sprintf("Policy %s is %s.", name, word))
}
