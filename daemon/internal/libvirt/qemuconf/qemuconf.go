// SPDX-License-Identifier: Apache-2.0

// Package qemuconf reads the settings of libvirt's QEMU driver, which no libvirt call returns.
package qemuconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Path returns the path of qemu.conf, in the parent of the directory of definitions.
func Path(definitions string) string {
	return filepath.Join(filepath.Dir(definitions), "qemu.conf")
}

// GivesImages reports whether libvirt makes QEMU's user the owner of images (dynamic_ownership, on
// by default).
func GivesImages(conf string) (bool, error) { return setting(conf, "dynamic_ownership") }

// RemembersOwners reports whether libvirt restores the previous owner of an image after its use
// (remember_owner, on by default).
func RemembersOwners(conf string) (bool, error) { return setting(conf, "remember_owner") }

func setting(conf, name string) (bool, error) {
	values, err := Read(conf)
	return values.On(name, true), err
}

// Values are the values of a file of settings by name, without quotes.
type Values map[string]string

// On reports whether a switch is on. If the file does not have the switch, it returns byDefault.
func (v Values) On(name string, byDefault bool) bool {
	value, set := v[name]
	if !set {
		return byDefault
	}
	return value != "0"
}

// Read reads a file of settings; an absent file has no settings.
func Read(path string) (Values, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings of libvirt's QEMU driver: %w", err)
	}
	values := Values{}
	for line := range strings.Lines(string(text)) {
		key, value, is := strings.Cut(strings.TrimSpace(line), "=")
		if is && !strings.HasPrefix(key, "#") {
			values[strings.TrimSpace(key)] = confValue(strings.TrimSpace(value))
		}
	}
	return values, nil
}

// confValue reads a number, or a string in single or double quotes. A comment may follow.
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
