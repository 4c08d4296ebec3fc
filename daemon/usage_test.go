// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/settings"
)

func TestWrongUsageEndsWithAStatusOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want int
	}{
		"unknown flag":              {[]string{"--frob"}, 2},
		"value of a flag":           {[]string{"--overlay-min-free-bytes", "much"}, 2},
		"unknown command":           {[]string{"dance", "--config", writeConfig(t, "")}, 2},
		"argument too many":         {[]string{"check-config", "please"}, 2},
		"unknown flag of a command": {[]string{"connector-test", "--frob"}, 2},
		"missing argument":          {[]string{"connector-test"}, 2},
		"option that is none":       {[]string{"connector-test", "/bin/true", "vg"}, 2},
		"missing file":              {[]string{"check-config", "--config", filepath.Join(t.TempDir(), "none")}, 1},
		"setting that cannot be":    {[]string{"check-config", "--config", writeConfig(t, ""), "--state-dir", "state"}, 1},
	} {
		err := run(t.Context(), tc.args, io.Discard, io.Discard)
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if got := settings.ExitStatus(err); got != tc.want {
			t.Errorf("%s: exit status %d of %v, want %d", name, got, err, tc.want)
		}
	}
}

func TestAnErrorInTheConfigurationStopsNoProgramThatDoesNotNeedIt(t *testing.T) {
	broken := writeConfig(t, "no_such_key = 1")
	for _, command := range []string{"privileged", "access", "processes"} {
		err := run(t.Context(), []string{command, "--config", broken}, io.Discard, io.Discard)
		if err == nil || strings.Contains(err.Error(), "no_such_key") { // systemd has passed no socket
			t.Errorf("%s: %v", command, err)
		}
	}
}
