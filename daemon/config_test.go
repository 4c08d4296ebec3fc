// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "volferryd.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, args []string) (*config.Config, error) {
	t.Helper()
	return config.Load(args, t.Output())
}

func TestAFlagWinsOverTheFile(t *testing.T) {
	file := writeConfig(t, "state_dir = \"/srv/a\"\nlog_level = \"debug\"\n")
	cfg, err := load(t, []string{"--config", file, "--state-dir", "/srv/b"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.StateDir != "/srv/b" || cfg.LogLevel != "debug" {
		t.Errorf("state_dir %q, log_level %q; want /srv/b of the flag and debug of the file", cfg.StateDir, cfg.LogLevel)
	}
	if want := "/srv/b/overlays"; cfg.OverlayDir != want {
		t.Errorf("overlay_dir %q, want %q", cfg.OverlayDir, want)
	}
	if want := "/srv/b/saves"; cfg.SaveDir != want {
		t.Errorf("save_dir %q, want %q", cfg.SaveDir, want)
	}
}

func TestAnUnknownKeyIsAnError(t *testing.T) {
	_, err := load(t, []string{"--config", writeConfig(t, "overlay-dir = \"/srv\"\n")})
	if err == nil || !strings.Contains(err.Error(), "overlay-dir") {
		t.Errorf("got %v, want an error that names the key", err)
	}
}

func TestAFileThatIsNamedMustExist(t *testing.T) {
	if _, err := load(t, []string{"--config", "/nonexistent/volferryd.toml"}); err == nil {
		t.Error("a missing file that was named is no error")
	}
}

func TestCheckRefusesWhatCouldNotWorkSafely(t *testing.T) {
	for name, args := range map[string][]string{
		"a relative state directory":   {"--state-dir", "state"},
		"a registry without TLS":       {"--registry", "http://elsewhere:7643"},
		"TLS without its files":        {"--registry", "https://elsewhere:7643", "--tls-cert", "/nonexistent/host.crt"},
		"a socket in a list":           {"--registry", "unix:///run/r.sock,https://elsewhere:7643"},
		"a pool that is shared twice":  {"--shared-pools", "a,a"},
		"a shared pool without a name": {"--shared-pools", "a,"},
		"a negative reserve":           {"--overlay-min-free-bytes", "-1"},
		"a relative allowed path":      {"--allowed-paths", "srv"},
		"an allowed path, no pattern":  {"--allowed-paths", "/dev/["},
	} {
		cfg, err := load(t, append([]string{"--config", writeConfig(t, "")}, args...))
		if err == nil {
			err = cfg.Check()
		}
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestOverlaysAndSavedMemoryInMemoryAreRefused(t *testing.T) {
	const tmpfs = "/dev/shm"
	if _, err := os.Stat(tmpfs); err != nil {
		t.Skipf("SKIPPED: this machine has no %s to try with", tmpfs)
	}
	for _, flag := range []string{"--overlay-dir", "--save-dir"} {
		cfg, err := load(t, []string{"--config", writeConfig(t, ""), flag, tmpfs + "/dir"})
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), "tmpfs") {
			t.Errorf("%s: got %v, want a refusal of tmpfs", flag, err)
		}
	}
}

func TestSavedMemoryMayBeInMemoryWhereThatIsAskedFor(t *testing.T) {
	const tmpfs = "/dev/shm"
	if _, err := os.Stat(tmpfs); err != nil {
		t.Skipf("SKIPPED: this machine has no %s to try with", tmpfs)
	}
	for _, args := range [][]string{
		{"--config", writeConfig(t, ""), "--save-dir", tmpfs + "/dir", "--save-dir-in-memory"},
		{"--config", writeConfig(t, "save_dir = \""+tmpfs+"/dir\"\nsave_dir_in_memory = true\n")},
	} {
		cfg, err := load(t, args)
		if err == nil {
			err = cfg.Check()
		}
		if err != nil {
			t.Errorf("%q: %v", args[2:], err)
		}
	}
}

func TestCommandsThatStartNothing(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"version"}, &out, t.Output()); err != nil || !strings.HasPrefix(out.String(), "volferryd ") {
		t.Errorf("version printed %q (%v)", &out, err)
	}
	out.Reset()
	args := []string{"check-config", "--config", writeConfig(t, ""), "--state-dir", t.TempDir()}
	if err := run(t.Context(), args, &out, t.Output()); err != nil || out.Len() == 0 {
		t.Errorf("check-config printed %q (%v)", &out, err)
	}
	if err := run(t.Context(), []string{"start"}, &out, t.Output()); err == nil {
		t.Error("an unknown command is taken")
	}
}

// TestAnAllowedPathThatIsOpenToOthersIsSaid, and accepted, because the operator has listed it.
func TestAnAllowedPathThatIsOpenToOthersIsSaid(t *testing.T) {
	open, closed := t.TempDir(), t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{open: true, closed: false} {
		var out, said bytes.Buffer
		args := []string{"check-config", "--config", writeConfig(t, ""), "--state-dir", t.TempDir(), "--allowed-paths", dir + ":/dev"}
		if err := run(t.Context(), args, &out, &said); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if got := strings.Contains(said.String(), "warning: allowed_paths has "+dir); got != want {
			t.Errorf("%s: said %q, want a warning: %t", dir, &said, want)
		}
	}
}

func TestTheVersionIsSaidWhateverTheConfigurationIs(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"version"}, {"--config", "/nonexistent/volferryd.toml", "--version"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, t.Output()); err != nil || !strings.HasPrefix(out.String(), "volferryd ") {
			t.Errorf("%v printed %q (%v)", args, &out, err)
		}
	}
}

func TestAWrongFlagIsSaidOnce(t *testing.T) {
	var said bytes.Buffer
	err := run(t.Context(), []string{"--colour", "red"}, t.Output(), &said)
	if err == nil || !strings.Contains(err.Error(), "colour") || said.Len() > 0 {
		t.Errorf("the error is %v, and before it was said: %q", err, &said)
	}
}

func TestSharedPoolsAreNamed(t *testing.T) {
	for name, args := range map[string][]string{
		"in the file": {"--config", writeConfig(t, "shared_pools = [\"san\", \"gfs\"]\n")},
		"with a flag": {"--config", writeConfig(t, ""), "--shared-pools", "san,gfs"},
	} {
		cfg, err := load(t, args)
		if err != nil || strings.Join(cfg.SharedPools, " ") != "san gfs" {
			t.Errorf("%s: %v (%v)", name, cfg, err)
		}
	}
}

func TestTheIDOfAHostStays(t *testing.T) {
	dir := t.TempDir()
	first, err := hostID(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := hostID(dir); err != nil || again != first {
		t.Errorf("the second start has id %s (%v), want %s", again, err, first)
	}
	if err := os.WriteFile(filepath.Join(dir, "host-id"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := hostID(dir); err == nil {
		t.Errorf("a broken id was replaced by %s instead of being reported", id)
	}
}
