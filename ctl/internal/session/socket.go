// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"strings"
)

// The default sockets of the daemon and the registry.
const (
	DaemonSocket   = "/run/volferry/volferryd.sock"
	RegistrySocket = "/run/volferry/registry.sock"
)

// DaemonProgram is the daemon's name in its status.
const DaemonProgram = "volferryd"

// ChooseSocket returns the user's socket, otherwise the daemon's or the registry's if it exists,
// otherwise the daemon's, for the error to name.
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

// OverTCP reports whether target is the URL of a registry and not a socket of this machine.
func OverTCP(target string) bool { return strings.HasPrefix(target, "https://") }

const registryProgram = "volferry-registry"

func (s *Session) program() string {
	if target := s.Client.Target(); target == RegistrySocket || OverTCP(target) {
		return registryProgram
	}
	return DaemonProgram
}
