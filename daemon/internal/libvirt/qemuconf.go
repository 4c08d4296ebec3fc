// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// qemuConfBeside is the file with the settings of libvirt's QEMU driver, which no call of
// libvirt tells. It is beside the directory of definitions.
func qemuConfBeside(definitions string) string {
	return filepath.Join(filepath.Dir(definitions), "qemu.conf")
}

// givesImages says whether libvirt makes QEMU's user the owner of images
// (dynamic_ownership), which is the default.
func givesImages(conf string) (bool, error) { return setting(conf, "dynamic_ownership") }

// setting reads a switch of the file that is on unless it says otherwise.
func setting(conf, name string) (on bool, err error) {
	text, err := os.ReadFile(conf)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the settings of libvirt's QEMU driver: %w", err)
	}
	on = true
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == name {
			on = strings.Trim(strings.TrimSpace(value), `"`) != "0"
		}
	}
	return on, nil
}
