// SPDX-License-Identifier: Apache-2.0

package command

import (
	"net"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/ctl/internal/web"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/internal/version"
)

func webCommand() *cli.Command {
	return &cli.Command{
		Name:  "web",
		Usage: "show hosts, pools, moves and problems for an operator in a browser",
		Description: "Prints the address of a page that shows the state of the daemon or registry as it changes, with\n" +
			"advice. The page only reads. The address is local to this machine and works once, in one browser.\n" +
			"To open it from another machine, forward a port of your choice (ssh -L PORT:127.0.0.1:PORT HOST)\n" +
			"and serve the page there (--listen 127.0.0.1:PORT). Ctrl-C ends the page.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "listen", Value: web.DefaultAddress, DefaultText: "a free port of 127.0.0.1",
				Usage: "serve the page at `ADDR` on 127.0.0.1 or ::1, such as 127.0.0.1:9645 for ssh -L",
			},
		},
		Action: withSession(serveWeb),
	}
}

func serveWeb(c *cli.Context, s *session.Session) error {
	address, err := web.CheckAddress(c.String("listen"))
	if err != nil {
		return cmdline.Usagef("web: --listen: %w", err)
	}
	// Report a wrong socket here and not in the browser.
	if _, _, err := session.Show(c.Context, s, routes.ShowStatus); err != nil {
		if c.Context.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is the normal end, also before the page is served
		}
		return err
	}
	l, err := new(net.ListenConfig).Listen(c.Context, "tcp", address)
	if err != nil {
		return api.Errorf(api.CodeConflict, "cannot serve the page: %v; without --listen it takes a free port", err)
	}
	server := web.New(s.Client, web.About{Target: s.Client.Target(), Command: commandFor(c, s), Version: version.String()})
	if err := printWebURL(s, server.URL(l.Addr())); err != nil {
		return err
	}
	return server.Serve(c.Context, l)
}

func printWebURL(s *session.Session, url string) error {
	if s.JSON {
		type document struct {
			URL string `json:"url"`
		}
		return render.JSON(s.Stdout, struct {
			SchemaVersion int      `json:"schema_version"`
			Web           document `json:"web"`
		}{api.SchemaVersion, document{url}})
	}
	s.Say("Open this in a browser; it works once. Ctrl-C ends the page.")
	return s.PrintLines(url)
}

// commandFor returns the beginning of a command line for the same target in another terminal.
func commandFor(c *cli.Context, s *session.Session) string {
	if !c.IsSet("socket") {
		return session.Program
	}
	return shell.Line(session.Program, "--socket", s.Client.Target())
}
