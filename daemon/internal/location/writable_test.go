// SPDX-License-Identifier: Apache-2.0

package location

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// mounted makes a directory read-only, with a reason in the table of mounts.
func mounted(t *testing.T, dir, line string) {
	t.Helper()
	table := filepath.Join(t.TempDir(), "mountinfo")
	text := "20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" + strings.ReplaceAll(line, "DIR", dir) + "\n"
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	wasTable, wasAccess := mountInfo, access
	t.Cleanup(func() { mountInfo, access = wasTable, wasAccess })
	mountInfo = table
	access = func(path string, _ uint32) error {
		if path == dir {
			return unix.EROFS
		}
		return nil
	}
}

func TestAPlaceThatTheUnitDoesNotNameIsRefusedWithTheDropIn(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ mount, says string }{
		"read-only in the namespace of the unit": {"30 20 8:1 / DIR ro,relatime - ext4 /dev/sda1 rw,discard", "ReadWritePaths=" + dir},
		"under a mount that the unit has so":     {"", "ReadWritePaths=" + dir},
		"a filesystem that is read-only":         {"30 20 8:2 / DIR ro,relatime - ext4 /dev/sdb1 ro", "remount"},
	} {
		t.Run(name, func(t *testing.T) {
			mounted(t, dir, c.mount)
			if err := CheckWritable(filepath.Join(dir, "new.raw")); api.CodeOf(err) != api.CodePermissionDenied || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if err := CheckWritable(filepath.Join(t.TempDir(), "new.raw")); err != nil {
				t.Errorf("of another directory: %v", err)
			}
			if err := CheckWritable(filepath.Join(dir, "not", "there.raw")); err != nil {
				t.Errorf("of a directory that is not there: %v", err)
			}
		})
	}
}

func TestAPathThatTheUnitHidesIsRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		unit, path string
		hidden     bool
	}{
		{"1", filepath.Join("/root", "not-there", "new.raw"), true},
		{"1", filepath.Join("/home", "ann", "not-there", "new.raw"), true},
		{"1", "/tmp/not-there-of-volferry/new.raw", true},
		{"1", "/srv/not-there-of-volferry/new.raw", false},
		{"", filepath.Join("/root", "not-there", "new.raw"), false}, // not started by systemd
	} {
		t.Setenv("INVOCATION_ID", c.unit)
		err := (Rules{}).CheckPath(t.Context(), c.path)
		if api.CodeOf(err) != api.CodeInvalidArgument || strings.Contains(err.Error(), "ProtectHome") != c.hidden {
			t.Errorf("%s, with INVOCATION_ID=%s: %v", c.path, c.unit, err)
		}
	}
	t.Setenv("INVOCATION_ID", "1")
	mounted(t, "/root", "30 20 8:1 / DIR ro,relatime - ext4 /dev/sda1 rw,discard")
	if err := CheckWritableDir("/root"); err == nil || !strings.Contains(err.Error(), "ProtectHome") {
		t.Errorf("a home that can be seen and not written to: %v", err)
	}
}

func TestADeviceIsWrittenWhereverItsNodeIs(t *testing.T) {
	mounted(t, "/dev", "30 20 0:5 / /dev ro,nosuid - devtmpfs devtmpfs rw")
	if err := CheckWritable("/dev/no-such-device"); err != nil {
		t.Error(err)
	}
}
