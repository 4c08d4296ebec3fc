// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"os"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// Where the daemon and the registry listen unless told otherwise.
const (
	DaemonSocket   = "/run/volferry/volferryd.sock"
	RegistrySocket = "/run/volferry/registry.sock"
)

// DaemonProgram is what the daemon calls itself in its status.
const DaemonProgram = "volferryd"

// CodeUnreachable marks the error of a request that nobody answered. The user gets a
// code of the closed list instead.
const CodeUnreachable api.Code = "unreachable"

// ChooseSocket returns the socket that the user asked for. Without one it is the
// daemon's if that exists, else the registry's if that exists, else the daemon's, for the
// error to name.
func ChooseSocket(asked string) string {
	if asked != "" {
		return asked
	}
	for _, path := range []string{DaemonSocket, RegistrySocket} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return DaemonSocket
}

// IsRemote says whether target is a registry on another machine, and no socket.
func IsRemote(target string) bool { return strings.HasPrefix(target, "https://") }

// explainUnreachable turns the error of a request that nobody answered into an error that
// says what to do. Other errors are returned unchanged.
func (s *Session) explainUnreachable(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != CodeUnreachable {
		return err
	}
	said, program := *e, s.program()
	said.Code = api.CodeHypervisorUnavailable
	if program == registryProgram {
		said.Code = api.CodeRegistryUnavailable
	}
	advice := "Start " + program + ", or name another socket with --socket or VOLFERRY_SOCKET; 'systemctl status " + program +
		"' says why it is not up, and '" + program + " check-config' whether its configuration is right."
	if IsRemote(s.Client.Target()) {
		advice = ""
	}
	return &AdvisedError{Err: &said, Exit: api.ExitUnavailable, Advice: advice}
}

// registryProgram is what the registry calls itself.
const registryProgram = "volferry-registry"

// program is the program that should answer.
func (s *Session) program() string {
	if target := s.Client.Target(); target == RegistrySocket || IsRemote(target) {
		return registryProgram
	}
	return DaemonProgram
}

// whyNoAnswer says, behind a line about an answer that does not come, what would say why: systemd
// holds the socket also of a program that does not start. It is empty for another machine.
func (s *Session) whyNoAnswer() string {
	if IsRemote(s.Client.Target()) {
		return ""
	}
	return "; if it does not come, 'systemctl status " + s.program() + "' or '" + s.program() + " check-config' says why"
}
