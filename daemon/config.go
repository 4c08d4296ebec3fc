// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
)

// config is the configuration of the daemon: the file's keys are the flags'
// names with underscores.
type config struct {
	Socket        string `toml:"socket"`
	SocketGroup   string `toml:"socket_group"`
	Registry      string `toml:"registry"`
	LibvirtSocket string `toml:"libvirt_socket"`
	LibvirtHook   string `toml:"libvirt_hook"`
	MetricsListen string `toml:"metrics_listen"`
	StateDir      string `toml:"state_dir"`
	OverlayDir    string `toml:"overlay_dir"`
	HostName      string `toml:"host_name"`
	LogLevel      string `toml:"log_level"`
	// OverlayMinFreeBytes must be free in OverlayDir before a migration starts.
	OverlayMinFreeBytes int64 `toml:"overlay_min_free_bytes"`
	// AllowedPaths are the directories for volumes given by path; see
	// migrate.Config.
	AllowedPaths []string `toml:"allowed_paths"`
}

const (
	defaultConfigFile = "/etc/volferry/volferryd.toml"
	// defaultOverlayMinFree is room for a busy guest's writes of some minutes.
	defaultOverlayMinFree = 1 << 30
)

func defaultConfig() *config {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	return &config{
		Socket: "/run/volferry/volferryd.sock", Registry: "unix:///run/volferry/registry.sock",
		LibvirtHook: instance.DefaultHook, MetricsListen: "127.0.0.1:9643", StateDir: "/var/lib/volferry",
		HostName: name, LogLevel: "info", OverlayMinFreeBytes: defaultOverlayMinFree,
	}
}

// loadConfig reads the file and then the flags, which win.
func loadConfig(args []string, stderr io.Writer) (*config, error) {
	program := settings.Program{Name: "volferryd", Usage: usage, File: defaultConfigFile, Stderr: stderr}
	cfg, rest, err := settings.Load(program, args, defaultConfig, (*config).flags)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("there is no use for the argument %q; see volferryd --help", rest[0])
	}
	if cfg.OverlayDir == "" {
		cfg.OverlayDir = filepath.Join(cfg.StateDir, "overlays")
	}
	return cfg, nil
}

func (c *config) flags(set *flag.FlagSet) {
	set.StringVar(&c.Socket, "socket", c.Socket, "Unix socket for volferryctl")
	set.StringVar(&c.SocketGroup, "socket-group", c.SocketGroup, "`group` that may use the socket; it is equal to root")
	set.StringVar(&c.Registry, "registry", c.Registry, "the registry, as unix:///`path`")
	set.StringVar(&c.LibvirtSocket, "libvirt-socket", c.LibvirtSocket, "libvirt's socket (default libvirt-sock, else virtqemud-sock, in /run/libvirt)")
	set.StringVar(&c.LibvirtHook, "libvirt-hook", c.LibvirtHook, "where the guard hook is installed")
	set.StringVar(&c.MetricsListen, "metrics-listen", c.MetricsListen, "`address` of /metrics; empty or off for none")
	set.StringVar(&c.StateDir, "state-dir", c.StateDir, "`directory` of the journal and the guards")
	set.StringVar(&c.OverlayDir, "overlay-dir", c.OverlayDir, "`directory` of overlays (default overlays in the state directory)")
	set.StringVar(&c.HostName, "host-name", c.HostName, "name of this host in the registry")
	set.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	set.Int64Var(&c.OverlayMinFreeBytes, "overlay-min-free-bytes", c.OverlayMinFreeBytes, "what must be free for overlays before a migration starts")
	set.Func("allowed-paths", "`directories` for volumes given by path, separated by colons (default: all but the system's)", func(v string) error {
		c.AllowedPaths = filepath.SplitList(v)
		return nil
	})
}

// check refuses a configuration that could not work, or not safely.
func (c *config) check() error {
	if !strings.HasPrefix(c.Registry, "unix:///") {
		return fmt.Errorf("registry is %q; it must be unix:///path", c.Registry)
	}
	if err := cmp.Or(
		settings.CheckPath("socket", c.Socket),
		settings.CheckPath("state_dir", c.StateDir),
		settings.CheckPath("overlay_dir", c.OverlayDir),
		settings.CheckPath("libvirt_hook", c.LibvirtHook),
		settings.CheckListen("metrics_listen", c.MetricsListen),
	); err != nil {
		return err
	}
	if _, err := settings.GroupID(c.SocketGroup); err != nil {
		return err
	}
	if _, err := service.NewLogger(io.Discard, c.LogLevel); err != nil {
		return err
	}
	for _, path := range c.AllowedPaths {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("allowed_paths has %q, which is no absolute path", path)
		}
	}
	if c.OverlayMinFreeBytes < 0 {
		return fmt.Errorf("overlay_min_free_bytes is %d; it must not be negative", c.OverlayMinFreeBytes)
	}
	return c.checkOverlayDir()
}

// checkOverlayDir: while a volume moves, the guest's newest writes are in its
// overlay alone, so the overlay must survive a reboot.
func (c *config) checkOverlayDir() error {
	dir := c.OverlayDir
	inMemory, err := location.InMemory(dir)
	for errors.Is(err, unix.ENOENT) && dir != "/" { // not made yet
		dir = filepath.Dir(dir)
		inMemory, err = location.InMemory(dir)
	}
	if err != nil {
		return fmt.Errorf("overlay_dir %s: %w", c.OverlayDir, err)
	}
	if inMemory {
		return fmt.Errorf("overlay_dir %s is in memory (tmpfs); a reboot would lose what guests wrote while their volumes moved", c.OverlayDir)
	}
	return nil
}
