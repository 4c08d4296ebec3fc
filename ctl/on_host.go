// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// hostFlag is --host of the commands that the registry passes on to a host.
func hostFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "host", Usage: usage + ", where the registry is asked and knows several"}
}

// hostAsked is the host that --host names, for the registry to pass a request on
// to; "" where it is not given, or is the one that answers. A daemon speaks for its
// own host alone, so another one is refused there.
func (s *session) hostAsked(c *cli.Context) (string, error) {
	host := c.String("host")
	if host == "" {
		return "", nil
	}
	st, _, err := show(c.Context, s, routes.ShowStatus)
	switch {
	case err != nil:
		return "", err
	case st.Program != daemonProgram:
		return host, nil
	case host == st.Host, host == st.HostID:
		return "", nil
	}
	return "", usagef("%s--host %s: at %s the daemon of host %s answers, which does nothing on others: ask the registry, with --socket", prefix(c), host, s.client.Target(), st.Host)
}

// whichHost adds to an error that names several hosts how one of them is chosen.
func whichHost(err error) error {
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
	return &advisedError{err: e, exit: e.Code.ExitStatus(), advice: "Give --host with one of them: " + strings.Join(names, ", ") + "."}
}
