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

// qemuConfBeside returns the path of the settings of libvirt's QEMU driver, which no libvirt call
// returns. The file is in the parent of the directory of definitions.
func qemuConfBeside(definitions string) string {
	return filepath.Join(filepath.Dir(definitions), "qemu.conf")
}

// givesImages reports whether libvirt makes QEMU's user the owner of images (dynamic_ownership, on
// by default).
func givesImages(conf string) (bool, error) { return setting(conf, "dynamic_ownership") }

func setting(conf, name string) (bool, error) {
	values, err := readConf(conf)
	return on(values, name, true), err
}

// on returns the value of a switch, or otherwise if the file does not have it.
func on(values map[string]string, name string, otherwise bool) bool {
	value, set := values[name]
	if !set {
		return otherwise
	}
	return value != "0"
}

func readConf(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings of libvirt's QEMU driver: %w", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, is := strings.Cut(strings.TrimSpace(line), "=")
		if is && !strings.HasPrefix(key, "#") {
			values[strings.TrimSpace(key)] = confValue(strings.TrimSpace(value))
		}
	}
	return values, nil
}

// confValue reads a number, or a string in quotes of either kind, before a comment.
func confValue(text string) string {
	for _, quote := range []string{`"""`, `"`, `'`} {
		if rest, quoted := strings.CutPrefix(text, quote); quoted {
			value, _, _ := strings.Cut(rest, quote)
			return value
		}
	}
	value, _, _ := strings.Cut(text, "#")
	return strings.TrimSpace(value)
}
