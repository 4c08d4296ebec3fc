// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes files of process 7.
func write(t *testing.T, dir Dir, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir.of(7), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

const stat = "7 (qemu) S 1 7 7 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 8111 1 2\n"

func TestWhatAProcessBeganWithIsReadFromItsCommandLine(t *testing.T) {
	dir := Dir(t.TempDir())
	write(t, dir, map[string]string{"stat": stat, "comm": "qemu-system-x86\n", "cmdline": strings.Join([]string{
		"qemu", "-blockdev", `{"driver":"file","filename":"/a \"b\".raw","node-name":"libvirt-2-storage","cache":{"direct":true}}`,
		"-blockdev", `{"node-name":"libvirt-2-format","driver":"raw","file":"libvirt-2-storage"}`,
		"-name", `{"filename":"/no","node-name":"libvirt-1-storage"}`, "",
	}, "\x00")})
	got, err := dir.About(t.Context(), 7)
	if want := []Node{{`/a "b".raw`, "libvirt-2-storage"}}; err != nil || !slices.Equal(got.Nodes, want) || got.Name != "qemu-system-x86" || got.Ticks != "8111" {
		t.Errorf("%+v (%v), want %v", got, err, want)
	}
	if _, err := dir.About(t.Context(), 8); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a process that is gone: %v", err)
	}
}

// Neither other open files nor processes that claim another domain are listed.
func TestOnlyTheImagesThatAreAskedForAreListed(t *testing.T) {
	dir, images := Dir(t.TempDir()), t.TempDir()
	for _, name := range []string{"one", "other"} {
		if err := os.WriteFile(filepath.Join(images, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, map[string]string{
		"cmdline": "qemu\x00-uuid\x00a\x00", "status": "Name:\tqemu\nUid:\t0\t107\t107\t107\n",
		"fdinfo/3": "flags:\t02140002\n", "fdinfo/4": "flags:\t02140000\n",
	})
	if err := errors.Join(os.Mkdir(filepath.Join(dir.of(7), "fd"), 0o755), os.Symlink("/usr/bin/qemu-system-x86_64", filepath.Join(dir.of(7), "exe")),
		os.Symlink(filepath.Join(images, "one"), filepath.Join(dir.of(7), "fd", "3")), os.Symlink(filepath.Join(images, "other"), filepath.Join(dir.of(7), "fd", "4"))); err != nil {
		t.Fatal(err)
	}
	one, err := Identify(filepath.Join(images, "one"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := dir.Claims(t.Context(), "a", []Image{one})
	if err != nil || len(got) != 1 || got[0].PID != 7 || got[0].UID != 107 || !slices.Equal(got[0].Files, []File{{Image: 0, FD: 3, Writable: true}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := dir.Claims(t.Context(), "b", []Image{one}); err != nil || len(got) != 0 {
		t.Errorf("of another domain: %+v, %v", got, err)
	}
}
