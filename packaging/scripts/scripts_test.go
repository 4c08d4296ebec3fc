// SPDX-License-Identifier: Apache-2.0

// Package scripts tests the scripts of the packages that can be run without a package.
package scripts

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// purge runs the script after a purge of volferryd with these directories in the place of
// the host's, and returns what it says.
func purge(t *testing.T, state, hooks string) (string, error) {
	t.Helper()
	text, err := os.ReadFile("postrm.sh")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer(
		"@PACKAGE@", "volferryd", "@STATE@", state, "@SOCKETS@", "volferryd.socket",
		"/etc/libvirt/hooks/qemu.d", hooks, "/run/systemd/system", state+"/none", "deb-systemd-helper", "no-such-helper",
	).Replace(string(text))
	run := exec.CommandContext(t.Context(), "sh", "-s", "purge")
	run.Stdin = strings.NewReader(script)
	out, err := run.CombinedOutput()
	return string(out), err
}

func TestPurgeIsRefusedWhileAnOperationIsOpen(t *testing.T) {
	dir := t.TempDir()
	state, hooks := filepath.Join(dir, "var"), filepath.Join(dir, "hooks")
	file := filepath.Join(state, "open-ops")
	for _, content := range []string{"operation 1 (volume.create)\n", ""} {
		if err := errors.Join(os.MkdirAll(state, 0o755), os.MkdirAll(hooks, 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		said, err := purge(t, state, hooks)
		if refused := err != nil && strings.Contains(said, strings.TrimSpace(content)); refused != (content != "") {
			t.Errorf("a purge with the open operations %q: %v, and it says\n%s", content, err, said)
		}
		if _, err := os.Stat(file); (err == nil) != (content != "") {
			t.Errorf("the state after a purge with the open operations %q: %v", content, err)
		}
	}
}

func TestAPurgeWithoutStateRemovesTheHook(t *testing.T) {
	hooks := t.TempDir()
	hook := filepath.Join(hooks, "volferry-guard")
	if err := os.WriteFile(hook, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if said, err := purge(t, filepath.Join(t.TempDir(), "none"), hooks); err != nil {
		t.Errorf("the purge: %v, and it says\n%s", err, said)
	}
	if _, err := os.Stat(hook); !os.IsNotExist(err) {
		t.Errorf("the hook after a purge: %v", err)
	}
}

// dpkg has removed the configuration by then.
func TestAPurgeThatIsRefusedKeepsTheConfigurationForTheNextInstallation(t *testing.T) {
	dir := t.TempDir()
	state, hooks := filepath.Join(dir, "var"), filepath.Join(dir, "hooks")
	const content = "state_dir = \"/srv/volferry\"\n"
	for name, text := range map[string]string{"configuration": content, "open-ops": "operation 1\n"} {
		if err := errors.Join(os.MkdirAll(state, 0o755), os.WriteFile(filepath.Join(state, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if said, err := purge(t, state, hooks); err == nil || !strings.Contains(said, "configuration is kept") {
			t.Errorf("the purge: %v, and it says\n%s", err, said)
		}
		if kept, err := os.ReadFile(filepath.Join(state, "configuration")); err != nil || string(kept) != content {
			t.Errorf("kept is %q, %v", kept, err)
		}
		if _, err := os.Stat(filepath.Join(state, "refused-purge")); err != nil {
			t.Error(err)
		}
	}
}

func TestPurgeAsksWhereTheConfigurationHasWhatGuestsNeed(t *testing.T) {
	const id = "45f85f92-d48c-42b4-a4ca-1b7b46b3db68"
	for _, left := range []string{
		"var/overlays/" + id + ".qcow2", "srv/overlays/" + id + ".qcow2", "srv/saves/" + id + "." + id + ".ram", "srv/guards/" + id,
	} {
		dir := t.TempDir()
		state, hooks := filepath.Join(dir, "var"), filepath.Join(dir, "hooks")
		directories := "guards " + dir + "/srv/guards\noverlays " + dir + "/srv/overlays\nsaves " + dir + "/srv/saves\n"
		theirs := filepath.Join(dir, "srv/overlays/image.qcow2")
		for path, content := range map[string]string{
			state + "/directories": directories, hooks + "/volferry-guard": "", theirs: "theirs", filepath.Join(dir, left): "needed",
		} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if said, err := purge(t, state, hooks); err == nil || !strings.Contains(said, left) || strings.Contains(said, theirs) {
			t.Errorf("a purge with %s: %v, and it says\n%s", left, err, said)
		}
		for _, path := range []string{filepath.Join(dir, left), hooks + "/volferry-guard", state + "/directories"} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("after a purge that was refused: %v", err)
			}
		}
		if err := os.Remove(filepath.Join(dir, left)); err != nil {
			t.Fatal(err)
		}
		if said, err := purge(t, state, hooks); err != nil {
			t.Errorf("a purge with nothing left: %v, and it says\n%s", err, said)
		}
		if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the state directory after a purge: %v", err)
		}
		if _, err := os.Stat(theirs); err != nil {
			t.Errorf("a purge removes what is none of Volferry's: %v", err)
		}
	}
}
