// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"strings"
)

// Where the daemon and the registry listen unless told otherwise.
const (
	DaemonSocket   = "/run/volferry/volferryd.sock"
	RegistrySocket = "/run/volferry/registry.sock"
)

// DaemonProgram is what the daemon calls itself in its status.
const DaemonProgram = "volferryd"

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

// IsRemote reports whether target is a registry on another machine, and no socket.
func IsRemote(target string) bool { return strings.HasPrefix(target, "https://") }

// registryProgram is what the registry calls itself.
const registryProgram = "volferry-registry"

// program is the program that should answer.
func (s *Session) program() string {
	if target := s.Client.Target(); target == RegistrySocket || IsRemote(target) {
		return registryProgram
	}
	return DaemonProgram
}
