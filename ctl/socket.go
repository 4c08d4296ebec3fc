// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// Where the daemon and the registry listen unless told otherwise.
const (
	daemonSocket   = "/run/volferry/volferryd.sock"
	registrySocket = "/run/volferry/registry.sock"
)

// daemonProgram is what the daemon calls itself in its status.
const daemonProgram = "volferryd"

// codeUnreachable marks the errors of calls that nobody answered, which the
// user sees with a code of the closed list.
const codeUnreachable api.Code = "unreachable"

// chooseSocket is the socket that was asked for; else the daemon's where there
// is one, else the registry's, else the daemon's again for the error to name.
func chooseSocket(asked string) string {
	if asked != "" {
		return asked
	}
	for _, path := range []string{daemonSocket, registrySocket} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return daemonSocket
}

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

// isRemote says whether target is a registry on another machine, and no socket.
func isRemote(target string) bool { return strings.HasPrefix(target, "https://") }

// explain turns the error of a call that nobody answered into one that says
// what to do. Answers stay as they are.
func (s *session) explain(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != codeUnreachable {
		return err
	}
	said, program := *e, daemonProgram
	said.Code = api.CodeHypervisorUnavailable
	target := s.client.Target()
	if target == registrySocket || isRemote(target) {
		said.Code, program = api.CodeRegistryUnavailable, "volferry-registry"
	}
	advice := "Start " + program + ", or name another socket with --socket or VOLFERRY_SOCKET."
	if isRemote(target) {
		advice = ""
	}
	return &advisedError{err: &said, exit: api.ExitUnavailable, advice: advice}
}
