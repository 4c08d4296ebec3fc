// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "show the versions of volferryctl and of the other side",
		Description: "It is no error here if no program answers at the socket.",
		Action:      withSession(showVersion),
	}
}

type versions struct {
	Client   string          `json:"client"`
	Go       string          `json:"go"`
	Server   json.RawMessage `json:"server"`
	Protocol int             `json:"protocol"`
	Features []string        `json:"features"`
	// ServerProtocol and ServerLacks (features that the other side lacks) are missing while the
	// other side does not answer.
	ServerProtocol int      `json:"server_protocol,omitempty"`
	ServerLacks    []string `json:"server_lacks,omitempty"`
}

func showVersion(c *cli.Context, s *session.Session) error {
	own := protocol.Own()
	v := versions{Client: own.Version, Go: runtime.Version(), Server: json.RawMessage("null"), Protocol: own.Protocol, Features: own.Features}
	resp, err := session.Get(c.Context, s, routes.ShowRegistryVersion)
	var advised *session.AdvisedError
	switch {
	case err == nil:
		v.Server = resp.Members["version"]
	case !errors.As(err, &advised):
		return err
	case session.IsStartFailure(err):
		s.Say("%s\n%s", advised.Err.Message, advised.Advice)
	}
	if peer, known := s.Client.Peer(); known && err == nil {
		v.ServerProtocol, v.ServerLacks = peer.Protocol, peer.LacksOfOurs()
	}
	if s.JSON {
		return render.JSON(s.Stdout, struct {
			SchemaVersion int      `json:"schema_version"`
			Version       versions `json:"version"`
		}{api.SchemaVersion, v})
	}
	if s.Quiet {
		return s.PrintLines(v.Client)
	}
	return s.PrintLines(fmt.Sprintf("%s %s (%s)", session.Program, v.Client, v.Go), serverLine(s, v.Server)+lacking(v.ServerLacks))
}

func lacking(features []string) string {
	if len(features) == 0 {
		return ""
	}
	return ", which lacks " + strings.Join(features, ", ")
}

func serverLine(s *session.Session, server json.RawMessage) string {
	var known struct {
		Program string `json:"program"`
		Version string `json:"version"`
	}
	if string(server) == "null" {
		return "no program answers at " + s.Client.Target()
	}
	// A bare string is a version, too.
	if json.Unmarshal(server, &known) != nil && json.Unmarshal(server, &known.Version) != nil {
		return "an unknown version answers at " + s.Client.Target()
	}
	if known.Program == "" {
		known.Program = "server"
	}
	return fmt.Sprintf("%s %s at %s", known.Program, render.OrDash(known.Version), s.Client.Target())
}
