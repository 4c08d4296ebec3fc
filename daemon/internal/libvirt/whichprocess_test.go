// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func writeProc(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(string(procDir), name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// identityOf7 returns the identity of process 7.
func identityOf7(t *testing.T) (string, error) {
	t.Helper()
	about, err := procDir.About(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	return identity(7, about)
}

// A process name may make its line look like two.
func TestAProcessIsToldByItsBootNumberAndStart(t *testing.T) {
	fakeProc(t)
	writeProc(t, "7/comm", "qemu\n")
	writeProc(t, "7/cmdline", "qemu\x00")
	const after = " S 1 7 7 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 8111 1 2\n"
	ids := map[string]bool{}
	for _, c := range []struct{ boot, stat string }{
		{"boot-1\n", "7 (qemu) 9 (x)" + after},
		{"boot-2\n", "7 (qemu) 9 (x)" + after},
		{"boot-1\n", "7 (qemu) 9 (x)" + strings.Replace(after, "8111", "8112", 1)},
	} {
		writeProc(t, "sys/kernel/random/boot_id", c.boot)
		writeProc(t, "7/stat", c.stat)
		id, err := identityOf7(t)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if !ids["boot-1/7/8111"] || len(ids) != 3 {
		t.Errorf("three processes are %v", ids)
	}
	writeProc(t, "7/stat", "7 (qemu) S 1\n")
	if id, err := identityOf7(t); !errors.Is(err, hv.ErrNoProcess) {
		t.Errorf("without a start: %q, %v", id, err)
	}
}
