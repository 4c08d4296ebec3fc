// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/volferry/volferry/test/vm/boot"
)

// path is the PATH of the command.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// exitPort is the device of the port to which the exit status is written.
func exitPort() (string, error) {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		if name, err := os.ReadFile(p); err == nil && string(name) == boot.ExitPort+"\n" {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(p))), nil
		}
	}
	return "", errors.New("there is no port " + boot.ExitPort)
}
