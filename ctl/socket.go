// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"

	"github.com/volferry/volferry/internal/api"
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
