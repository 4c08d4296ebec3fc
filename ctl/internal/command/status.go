// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show daemon, registry and libvirt on one screen",
		Description: "Shows which program answers at the socket, whether the programs that it needs work, and how many\n" +
			"objects it manages. The exit status is 0 whenever there is an answer; with -o json \"degraded\" is\n" +
			"true if something is wrong.",
		Action: withSession(status),
	}
}

func status(c *cli.Context, s *session.Session) error {
	st, resp, err := session.Show(c.Context, s, routes.ShowStatus)
	if err != nil {
		return err
	}
	var r render.Record
	peer, _ := s.Client.Peer()
	r.Add("program", st.Program+" "+st.Version+lacking(peer.LacksOfOurs()))
	if st.Host != "" {
		r.Add("host", fmt.Sprintf("%s (%s)", st.Host, st.HostID))
	}
	r.Add("socket", s.Client.Target())
	for _, e := range s.Client.Endpoints() {
		if e.InUse {
			r.Add("in use", e.URL)
		}
	}
	r.Add("running since", fmt.Sprintf("%s (%s)", render.Time(st.Since), render.Ago(st.Since, s.Now)))
	for _, p := range st.Parts {
		r.Add(p.Name, checkLines(p)...)
	}
	r.Add("instances", fmt.Sprint(st.Instances))
	r.Add("volumes", fmt.Sprint(st.Volumes))
	r.Add("migrations", fmt.Sprintf("%d active", st.MigrationsActive))
	if st.NeedsOperator > 0 {
		r.Add("NEEDS OPERATOR", fmt.Sprintf("%d; see %[2]s migration list, %[2]s op list and %[2]s doctor", st.NeedsOperator, session.Program))
	}
	if st.Degraded {
		r.Add("degraded", "yes: the faults above prevent some work")
	}
	return s.PrintRecord(resp, st.HostID, &r)
}

func checkLines(c api.Check) []string {
	line := c.Status
	if c.Message != "" {
		line += ": " + c.Message
	}
	lines := []string{line}
	if c.Advice != "" {
		lines = append(lines, strings.Split(c.Advice, "\n")...)
	}
	return lines
}
