// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os/exec"

	"github.com/volferry/volferry/daemon/internal/connector"
)

// Installed returns an error that names the Debian package, if a program is not installed.
func Installed(program, debian string) error {
	if _, err := exec.LookPath(program); err != nil {
		return connector.Errorf(connector.CodeUnavailable, "%s is not installed: apt-get install %s", program, debian)
	}
	return nil
}
