// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/volferry/volferry/internal/client"
)

// connect makes the client of the socket or registry that the user names. It
// connects with the first request.
func connect(c *cli.Context) (*client.Client, error) {
	// An empty variable is as good as none; an empty flag is a variable of a script that
	// is not set.
	variable, there := os.LookupEnv("VOLFERRY_SOCKET")
	if c.IsSet("socket") && c.String("socket") == "" && (variable != "" || !there) {
		return nil, usagef("--socket is empty: name a socket, or leave it out for the daemon of this host")
	}
	target := chooseSocket(c.String("socket"))
	settings := []client.Setting{client.UnavailableAs(codeUnreachable)}
	if isRemote(target) {
		for _, file := range []string{"ca", "cert", "key"} {
			if c.String(file) == "" {
				return nil, usagef("--socket %s: --%s is missing: give --ca, --cert and --key, or VOLFERRY_CA, VOLFERRY_CERT and VOLFERRY_KEY; 'volferry-registry issue-cert operator NAME' makes the files", target, file)
			}
		}
		settings = append(settings, client.TLS(c.String("ca"), c.String("cert"), c.String("key")))
	}
	cl, err := client.New(target, settings...)
	if err != nil {
		return nil, usagef("--socket: %w", err)
	}
	return cl, nil
}

func newSession(c *cli.Context) (*session, error) {
	cl, err := connect(c)
	if err != nil {
		return nil, err
	}
	return &session{
		client:   cl,
		stdout:   c.App.Writer,
		stderr:   c.App.ErrWriter,
		json:     c.String("output") == "json",
		quiet:    c.Bool("quiet"),
		noWait:   c.Bool("no-wait"),
		progress: c.String("progress"),
		now:      time.Now(),
	}, nil
}

// withSession makes an action of a function that needs a session.
func withSession(f func(*cli.Context, *session) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		s, err := newSession(c)
		if err != nil {
			return err
		}
		defer s.client.Close()
		return f(c, s)
	}
}

