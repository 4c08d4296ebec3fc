// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
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

func doctor(c *cli.Context, s *session) error {
	checks, a, err := list(c.Context, s, routes.RunDoctor)
	if isNotFound(err) {
		return &advisedError{
			err:  api.Errorf(api.CodeInvalidArgument, "doctor looks at a host, and at %s the registry answers, which has none", s.client.Target()),
			exit: api.ExitUsage,
			advice: fmt.Sprintf("Ask the daemon on that host: %[1]s --socket %[2]s doctor\nHow the registry is: %[1]s --socket %[3]s status",
				programName, daemonSocket, s.client.Target()),
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
	if err := s.printChecks(a, checks); err != nil {
		return err
	}
	if failed > 0 {
		return &failedChecksError{failed: failed, of: len(checks)}
	}
	return nil
}

// printChecks writes each finding over its advice: sentences fit no table.
func (s *session) printChecks(a answer, checks []api.Check) error {
	if s.json {
		return render.JSON(s.stdout, a.members)
	}
	for _, c := range checks {
		if s.quiet && c.Status == "ok" {
			continue
		}
		lines := []string{fmt.Sprintf("%-4s  %s: %s", c.Status, c.Name, c.Message)}
		if c.Advice != "" {
			lines = append(lines, "      "+strings.ReplaceAll(c.Advice, "\n", "\n      "))
		}
		if err := s.printLines(lines...); err != nil {
			return err
		}
	}
	return nil
}
