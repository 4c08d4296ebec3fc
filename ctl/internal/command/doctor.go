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

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check what on this host would stop a migration",
		Description: "Looks at libvirt's hook, space for overlays, labels, versions and pools, and says what to\n" +
			"do about each finding. It changes nothing. The exit status is 4 if a check failed; warnings\n" +
			"do not count.",
		Action: withSession(doctor),
	}
}

func doctor(c *cli.Context, s *session.Session) error {
	checks, resp, err := session.List(c.Context, s, routes.RunDoctor)
	if isNotFound(err) {
		return &session.AdvisedError{
			Err:  api.Errorf(api.CodeInvalidArgument, "doctor looks at a host, and at %s the registry answers, which has none", s.Client.Target()),
			Exit: api.ExitUsage,
			Advice: fmt.Sprintf("Ask the daemon on that host: %[1]s --socket %[2]s doctor\nHow the registry is: %[1]s --socket %[3]s status",
				session.Program, session.DaemonSocket, s.Client.Target()),
		}
	}
	if err != nil {
		return err
	}
	failed := 0
	for _, check := range checks {
		if check.Status == "fail" {
			failed++
		}
	}
	if err := printChecks(s, resp, checks); err != nil {
		return err
	}
	if failed > 0 {
		return &failedChecksError{failed: failed, of: len(checks)}
	}
	return nil
}

// printChecks writes each finding with its advice under it: sentences do not fit a table.
func printChecks(s *session.Session, resp session.Response, checks []api.Check) error {
	if s.JSON {
		return render.JSON(s.Stdout, resp.Members)
	}
	for _, c := range checks {
		if s.Quiet && c.Status == "ok" {
			continue
		}
		lines := []string{fmt.Sprintf("%-4s  %s: %s", c.Status, c.Name, c.Message)}
		if c.Advice != "" {
			lines = append(lines, "      "+strings.ReplaceAll(c.Advice, "\n", "\n      "))
		}
		if err := s.PrintLines(lines...); err != nil {
			return err
		}
	}
	return nil
}
