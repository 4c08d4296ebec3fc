// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os/exec"

	"github.com/volferry/volferry/daemon/internal/connector"
)

// Installed refuses where a program is not there to be run, and says which package of Debian has
// it.
func Installed(program, debian string) error {
	if _, err := exec.LookPath(program); err != nil {
		return connector.Errorf(connector.CodeUnavailable, "%s is not installed: apt-get install %s", program, debian)
	}
	return nil
}
