// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func hostFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "host", Usage: usage + ", needed at a registry with several hosts"}
}

// requestedHost returns the host of --host, for the registry to forward the request; "" if unset
// or the answering host itself. Another host is an error at a daemon.
func requestedHost(c *cli.Context, s *session.Session) (string, error) {
	host := c.String("host")
	if host == "" {
		return "", nil
	}
	st, _, err := session.Show(c.Context, s, routes.ShowStatus)
	switch {
	case err != nil:
		return "", err
	case st.Program != session.DaemonProgram:
		return host, nil
	case host == st.Host, host == st.HostID:
		return "", nil
	}
	return "", cmdline.Usagef("%s--host %s: at %s the daemon of host %s answers, which works on its own host only: ask the registry, with --socket", cmdline.Prefix(c), host, s.Client.Target(), st.Host)
}

func explainHostChoice(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	hosts, several := e.Details["hosts"].([]any)
	if !several {
		return err
	}
	names := make([]string, 0, len(hosts))
	for _, h := range hosts {
		names = append(names, fmt.Sprint(h))
	}
	return &session.AdvisedError{Err: e, Exit: e.Code.ExitStatus(), Advice: "Give --host with one of them: " + strings.Join(names, ", ") + "."}
}
