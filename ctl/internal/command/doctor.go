// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check this host for faults that would stop a migration",
		Description: "Makes an image in the overlay directory and in each pool, and opens it as QEMU's user. Checks\n" +
			"libvirt's hook, versions and their known bugs, security drivers, space, clock and certificates,\n" +
			"and prints advice for each finding. It changes nothing. The exit status is 4 if a check failed;\n" +
			"warnings do not count.\n\n" +
			"With --fix it first makes the repairs that touch no guest: it creates directories of volferryd\n" +
			"that are missing, corrects their modes, installs the hook if it is missing or older, and reloads\n" +
			"a libvirt that has not seen the hook, and tests the hook. It prints the state before and after\n" +
			"each repair.",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "fix", Usage: "make the safe repairs, then check"}},
		Action: withSession(doctor),
	}
}

func doctor(c *cli.Context, s *session.Session) error {
	var fixed session.Response
	if c.Bool("fix") {
		var err error
		if fixed, err = fixDoctor(c, s); err != nil {
			return notAtRegistry(s, err)
		}
	}
	checks, resp, err := session.List(c.Context, s, routes.RunDoctor)
	if err != nil {
		return notAtRegistry(s, err)
	}
	if fixes, has := fixed.Members[routes.FixDoctor.Noun]; has {
		resp = resp.With(routes.FixDoctor.Noun, fixes)
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

// notAtRegistry replaces the error of a registry, which has no doctor, by advice to ask the
// daemon.
func notAtRegistry(s *session.Session, err error) error {
	if !isNotFound(err) {
		return err
	}
	daemon := fmt.Sprintf("Ask the daemon on that host: %s --socket %s doctor", session.Program, session.DaemonSocket)
	if _, err := os.Stat(session.DaemonSocket); err != nil {
		daemon += " (here it does not run: 'systemctl status volferryd')"
	}
	return &session.AdvisedError{
		Err:    api.Errorf(api.CodeInvalidArgument, "doctor checks a host, and at %s the registry answers, which checks none", s.Client.Target()),
		Exit:   api.ExitUsage,
		Advice: daemon + "\nState of the registry: " + shell.Line(session.Program, "--socket", s.Client.Target(), "status"),
	}
}

func fixDoctor(c *cli.Context, s *session.Session) (session.Response, error) {
	resp, err := session.Send(c.Context, s, routes.FixDoctor, routes.None{})
	if err != nil || s.JSON {
		return resp, err
	}
	var fixes []api.Fix
	if err := resp.Decode(routes.FixDoctor.Noun, &fixes); err != nil {
		return resp, err
	}
	for _, f := range fixes {
		err := s.PrintLines(fmt.Sprintf("%s  %s: %s", f.Status, f.Name, f.Action), "      before: "+f.Before, "      after:  "+f.After)
		if err != nil {
			return resp, err
		}
	}
	if len(fixes) == 0 && !s.Quiet {
		err = s.PrintLines("Nothing to fix.")
	}
	if err == nil {
		err = s.PrintLines("")
	}
	return resp, err
}

// printChecks prints checks, with the advice under each: sentences do not fit a table.
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
