// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func hostCommand() *cli.Command {
	return &cli.Command{
		Name:  "host",
		Usage: "hypervisors that are registered at the registry",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list hosts", Action: withSession(hostList)},
			{Name: "show", Usage: "show one host", ArgsUsage: "HOST", Action: withSession(hostShow)},
			{
				Name: "fence", Usage: "declare that a host cannot touch any volume any more", ArgsUsage: "HOST", Action: withSession(hostFence),
				UsageText: session.Program + " host fence HOST --evidence TEXT [--even-if-up]",
				Description: "Only then may its attachments be deleted by force and its volumes be used elsewhere. If the host\n" +
					"still runs, guests on two hosts write to one volume: be sure, and say how you know. When the host\n" +
					"comes back, it first releases the volumes that it has lost, and changes nothing else before that.\n\n" +
					"For example: " + session.Program + " host fence hv3 --evidence 'powered off at the PDU, checked by hand'",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "evidence", Usage: "how you know: `TEXT` for the audit trail"},
					&cli.BoolFlag{Name: "even-if-up", Usage: "also fence a host that reports right now"},
				},
			},
			{
				Name: "forget", Usage: "forget a fenced host that is gone for good", ArgsUsage: "HOST", Action: withSession(hostForget),
				UsageText: session.Program + " host forget HOST [--with-volumes]",
				Description: "The host must have no instances, attachments and open migrations. Its volumes in shared pools\n" +
					"become volumes of another host that has the pool. Deny its certificate too, or the host registers\n" +
					"again.",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "with-volumes", Usage: "also forget the volumes in pools of this host alone"}},
			},
		},
	}
}

func hostList(c *cli.Context, s *session.Session) error {
	hosts, resp, err := session.List(c.Context, s, routes.ListHosts)
	if err != nil {
		return err
	}
	t := render.Table{Header: []string{"NAME", "ID", "STATUS", "VERSION", "LAST SEEN"}}
	ids := make([]string, 0, len(hosts))
	for _, h := range hosts {
		ids = append(ids, h.ID)
		t.Add(h.Name, h.ID, hostStatus(&h), h.Version+lacking(h.Lacks), agoOrDash(h.LastSeenAt, s.Now))
	}
	return s.PrintList(resp, ids, &t, "No host yet: a daemon registers its host when it starts.")
}

func hostStatus(h *api.Host) string {
	if h.Behind {
		return h.Status + ", not back since the restore"
	}
	return h.Status
}

func hostShow(c *cli.Context, s *session.Session) error {
	h, resp, err := session.Show(c.Context, s, routes.ShowHost, c.Args().First())
	if err != nil {
		return err
	}
	var r render.Record
	r.Add("id", h.ID)
	r.Add("name", h.Name)
	r.Add("status", hostStatus(h))
	r.Add("version", h.Version+lacking(h.Lacks))
	r.Add("epoch", strconv.FormatInt(h.Epoch, 10))
	r.Add("last seen", timeOrDash(h.LastSeenAt))
	r.Add("registered", render.Time(h.CreatedAt))
	return s.PrintRecord(resp, h.ID, &r)
}

func hostForget(c *cli.Context, s *session.Session) error {
	h, resp, err := session.Change(c.Context, s, routes.ForgetHost.With("volumes", boolParam(c.Bool("with-volumes"))), routes.None{}, c.Args().First())
	if err != nil {
		return err
	}
	return s.PrintResult(resp, h.ID, "Forgot host "+h.Name+".")
}

func hostFence(c *cli.Context, s *session.Session) error {
	evidence := strings.TrimSpace(c.String("evidence"))
	if evidence == "" {
		return cmdline.Usagef("host fence: --evidence is missing: say how you know that the host cannot write, for example --evidence 'powered off at the PDU'")
	}
	h, resp, err := session.Change(c.Context, s, routes.FenceHost, api.HostFence{Evidence: evidence, EvenIfUp: c.Bool("even-if-up")}, c.Args().First())
	if err != nil {
		return err
	}
	return s.PrintResult(resp, h.ID, fmt.Sprintf("Fenced host %s: it is in epoch %d now.", h.Name, h.Epoch),
		fmt.Sprintf("Its attachments stay until you delete them: '%s attachment list', then '%s attachment delete A --force'.", session.Program, session.Program))
}
