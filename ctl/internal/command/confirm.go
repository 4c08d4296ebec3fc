// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
)

const flagYes = "yes"

// confirm asks the user; every answer but yes is an error. Without a terminal the error is
// noTerminal.
func confirm(c *cli.Context, s *session.Session, question, noTerminal string) error {
	in, ok := terminal(c)
	if !ok {
		return cmdline.Usagef("%s%s; nothing was done", cmdline.Prefix(c), noTerminal)
	}
	fmt.Fprint(s.Stderr, question+" [y/N] ")
	line, err := bufio.NewReader(in).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
		return &session.AdvisedError{Err: api.Errorf(api.CodeInvalidArgument, "you did not agree; nothing was done"), Exit: api.ExitRefused}
	}
	return nil
}

func terminal(c *cli.Context) (*os.File, bool) {
	in, ok := c.App.Reader.(*os.File)
	return in, ok && term.IsTerminal(int(in.Fd()))
}
