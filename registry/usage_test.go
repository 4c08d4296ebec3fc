// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/settings"
)

func TestWrongUsageEndsWithAStatusOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want int
	}{
		"unknown flag":              {[]string{"--frob"}, 2},
		"value of a flag":           {[]string{"--max-handshakes", "many"}, 2},
		"unknown command":           {[]string{"dance"}, 2},
		"argument too many":         {[]string{"check-config", "please"}, 2},
		"unknown flag of a command": {[]string{"backup", "--frob"}, 2},
		"missing argument":          {[]string{"backup"}, 2},
		"missing flag":              {[]string{"accept-restore"}, 2},
		"days that cannot be":       {[]string{"init-ca", "--days", "0"}, 2},
		"missing file":              {[]string{"check-config", "--config", filepath.Join(t.TempDir(), "none")}, 1},
		"setting that cannot be":    {[]string{"check-config", "--db", "registry.db"}, 1},
	} {
		err := run(t.Context(), tc.args, io.Discard, io.Discard)
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if got := settings.ExitStatus(err); got != tc.want {
			t.Errorf("%s: exit status %d of %v, want %d", name, got, err, tc.want)
		}
	}
}
