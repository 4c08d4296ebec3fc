// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/ctl/internal/unit"
	"github.com/volferry/volferry/internal/client"
)

// connect returns the client for the user's socket or registry, which connects with its first
// request.
func connect(c *cli.Context) (*client.Client, error) {
	// An empty variable counts as unset; an empty flag comes from an unset variable of a script.
	variable, there := os.LookupEnv("VOLFERRY_SOCKET")
	if c.IsSet("socket") && c.String("socket") == "" && (variable != "" || !there) {
		return nil, cmdline.Usagef("--socket is empty: name a socket, or leave it out for the daemon of this host")
	}
	target := session.ChooseSocket(c.String("socket"))
	settings := []client.Setting{client.UnavailableAs(session.CodeUnreachable)}
	if session.OverTCP(target) {
		for _, file := range []string{"ca", "cert", "key"} {
			if c.String(file) == "" {
				return nil, cmdline.Usagef("--socket %s: --%s is missing: give --ca, --cert and --key, or VOLFERRY_CA, VOLFERRY_CERT and VOLFERRY_KEY; 'volferry-registry issue-cert operator NAME' makes the files", target, file)
			}
		}
		settings = append(settings, client.TLS(c.String("ca"), c.String("cert"), c.String("key")))
	}
	cl, err := client.New(target, settings...)
	if err != nil {
		return nil, cmdline.Usagef("--socket: %w", err)
	}
	return cl, nil
}

func newSession(c *cli.Context) (*session.Session, error) {
	cl, err := connect(c)
	if err != nil {
		return nil, err
	}
	s := &session.Session{
		Client:   cl,
		Stdout:   c.App.Writer,
		Stderr:   c.App.ErrWriter,
		JSON:     c.String("output") == "json",
		Quiet:    c.Bool("quiet"),
		NoWait:   c.Bool("no-wait"),
		Progress: c.String("progress"),
		Now:      time.Now(),
	}
	if slices.Contains([]string{session.DaemonSocket, session.RegistrySocket}, cl.Target()) {
		s.ShowUnit = unit.Show
	}
	return s, nil
}

func withSession(f func(*cli.Context, *session.Session) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		s, err := newSession(c)
		if err != nil {
			return err
		}
		defer s.Client.Close()
		return hintNearest(c, s, hintVolume(c, s, hintInstance(c, s, f(c, s))))
	}
}
