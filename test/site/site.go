// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/test/lab"
)

// Site is one host with its registry. Methods may be called from one goroutine
// at a time, but for Ctl, which may be called from any.
type Site struct {
	Dir      string
	Libvirtd *lab.Libvirtd

	bin      string
	registry *program
	daemon   *program
}

// Overlays and Guards are the directories that are empty when nothing is in
// progress.
func (s *Site) Overlays() string { return filepath.Join(s.Dir, "state", "overlays") }

// Guards is where the guards are.
func (s *Site) Guards() string { return filepath.Join(s.Dir, "state", "guards") }

// Socket is the daemon's socket.
func (s *Site) Socket() string { return filepath.Join(s.Dir, "volferryd.sock") }

// Start starts a libvirtd, a registry and a daemon with their state below dir,
// whose path must be short (lab.TempDir). Bin is the directory of the built
// programs. Close must be called.
func Start(ctx context.Context, dir, bin string) (*Site, error) {
	s := &Site{Dir: dir, bin: bin}
	if err := os.MkdirAll(s.Guards(), 0o711); err != nil {
		return nil, fmt.Errorf("start site: %w", err)
	}
	virt := filepath.Join(dir, "virt")
	if err := installHook(filepath.Join(virt, "etc", "hooks", "qemu.d"), s.Guards()); err != nil {
		return nil, fmt.Errorf("start site: %w", err)
	}
	l, err := lab.StartLibvirtd(ctx, virt)
	if err != nil {
		return nil, err
	}
	s.Libvirtd = l
	if err := s.StartRegistry(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.StartDaemon(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// hookSource is the guard hook in the source tree.
const hookSource = "packaging/libvirt-hook/volferry-guard"

// installHook installs the guard hook as a package would, but for the directory
// that it looks in.
func installHook(hooks, guards string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, hookSource))
	if err != nil {
		return fmt.Errorf("install hook: %w", err)
	}
	const line = "GUARD_DIR=/var/lib/volferry/guards\n"
	if !strings.Contains(string(text), line) {
		return fmt.Errorf("install hook: %s has no line %q", hookSource, line)
	}
	text = []byte(strings.Replace(string(text), line, "GUARD_DIR="+guards+"\n", 1))
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		return fmt.Errorf("install hook: %w", err)
	}
	return os.WriteFile(filepath.Join(hooks, "volferry-guard"), text, 0o755)
}

// Root is the top of the source tree that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", errors.New("find the source tree: no go.mod above the working directory")
		}
	}
}

// StartRegistry starts the registry and returns when it answers.
func (s *Site) StartRegistry(ctx context.Context) error {
	p, err := start(ctx, filepath.Join(s.bin, "volferry-registry"), filepath.Join(s.Dir, "registry.log"), nil,
		"--config", s.configFile(), "--socket", s.registrySocket(), "--db", filepath.Join(s.Dir, "registry.db"), "--metrics-listen", "off")
	if err != nil {
		return err
	}
	s.registry = p
	return p.untilReady(ctx)
}

func (s *Site) registrySocket() string { return filepath.Join(s.Dir, "registry.sock") }

// configFile is an empty configuration: what a host's own may say is not for
// the tests.
func (s *Site) configFile() string {
	path := filepath.Join(s.Dir, "empty.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "/nonexistent"
	}
	return path
}

// StartDaemon starts the daemon, with these additional variables in its
// environment, and returns when it is ready.
func (s *Site) StartDaemon(ctx context.Context, env ...string) error {
	p, err := start(ctx, filepath.Join(s.bin, "volferryd"), filepath.Join(s.Dir, "volferryd.log"), env,
		"--config", s.configFile(), "--socket", s.Socket(), "--registry", "unix://"+s.registrySocket(),
		"--state-dir", filepath.Join(s.Dir, "state"), "--overlay-dir", s.Overlays(),
		"--libvirt-socket", s.Libvirtd.Socket, "--libvirt-hook", filepath.Join(s.Libvirtd.HooksDir, "qemu.d", "volferry-guard"),
		"--metrics-listen", "off", "--host-name", "lab", "--overlay-min-free-bytes", fmt.Sprint(64<<20))
	if err != nil {
		return err
	}
	s.daemon = p
	return p.untilReady(ctx)
}

// KillDaemon kills the daemon with SIGKILL and returns when it is gone.
func (s *Site) KillDaemon() { s.daemon.kill() }

// DaemonDied returns when the daemon is gone by itself, as at a fault point.
func (s *Site) DaemonDied(ctx context.Context) error { return s.daemon.wait(ctx) }

// KillRegistry kills the registry with SIGKILL.
func (s *Site) KillRegistry() { s.registry.kill() }

// Logs are the ends of the programs' logs, for a test that failed.
func (s *Site) Logs() string {
	var out strings.Builder
	for _, name := range []string{"registry.log", "volferryd.log"} {
		fmt.Fprintf(&out, "--- %s\n%s\n", name, tail(filepath.Join(s.Dir, name)))
	}
	return out.String()
}

// tail is the end of a log, as much as there is.
func tail(path string) []byte {
	const end = 8 << 10
	text, _ := os.ReadFile(path)
	return text[max(0, len(text)-end):]
}

// Close stops everything. Guests must be closed before.
func (s *Site) Close() error {
	for _, p := range []*program{s.daemon, s.registry} {
		if p != nil {
			p.stop()
		}
	}
	if s.Libvirtd == nil {
		return nil
	}
	return s.Libvirtd.Close()
}
