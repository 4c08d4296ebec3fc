// SPDX-License-Identifier: Apache-2.0

// Package config has the settings of volferryd, and the directories and certificates that they
// name.
package config

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
)

const usage = `volferryd - the Volferry daemon of one hypervisor

Usage:
  volferryd [flags]               run
  volferryd check-config [flags]  say whether the configuration is right; start nothing.
                                  Connectors look at their pools
  volferryd directories [flags]   print what the configuration says where guards, overlays and saved guests are
  volferryd open-ops [flags]      print the operations in the journal that are not over; not while the daemon runs
  volferryd connector-test PROGRAM [KEY=VALUE ...]
                                  say whether a connector keeps to its protocol; it makes and deletes a volume
  volferryd version, --version

  volferryd privileged, volferryd dialer, volferryd connectors, volferryd storage,
  volferryd images, volferryd access, volferryd processes, volferryd hook
                                  what the packaged unit of volferryd may not do, in
                                  its place; started by systemd when it is asked for

A flag wins over the configuration file. Flags:
`

// Config is the configuration of the daemon. A key of the file is a flag's name with underscores.
type Config struct {
	Socket      string `toml:"socket"`
	SocketGroup string `toml:"socket_group"`
	Registry    string `toml:"registry"`
	// TLSCA, TLSCert and TLSKey are needed for a registry at https://.
	TLSCA         string `toml:"tls_ca"`
	TLSCert       string `toml:"tls_cert"`
	TLSKey        string `toml:"tls_key"`
	LibvirtSocket string `toml:"libvirt_socket"`
	LibvirtHook   string `toml:"libvirt_hook"`
	// LibvirtConfigDir is libvirt's directory of domain definitions.
	LibvirtConfigDir string `toml:"libvirt_config_dir"`
	// LibvirtStateDir is libvirt's directory of other data about domains and their processes.
	LibvirtStateDir string `toml:"libvirt_state_dir"`
	MetricsListen   string `toml:"metrics_listen"`
	StateDir        string `toml:"state_dir"`
	OverlayDir      string `toml:"overlay_dir"`
	// OverlayDirShared is true if other hosts see OverlayDir at the same path. Each host then has
	// its own subdirectory.
	OverlayDirShared bool   `toml:"overlay_dir_shared"`
	SaveDir          string `toml:"save_dir"`
	// SaveDirInMemory permits a SaveDir on a tmpfs.
	SaveDirInMemory bool   `toml:"save_dir_in_memory"`
	HostName        string `toml:"host_name"`
	LogLevel        string `toml:"log_level"`
	// OverlayMinFreeBytes is the space that must be free in OverlayDir when a migration starts.
	OverlayMinFreeBytes int64 `toml:"overlay_min_free_bytes"`
	// OverlayThrottleBelowBytes is the free space in OverlayDir below which guests that write
	// there are throttled, so that the space lasts for OverlayThrottleSeconds. 0 disables that.
	OverlayThrottleBelowBytes int64 `toml:"overlay_throttle_below_bytes"`
	OverlayThrottleSeconds    int64 `toml:"overlay_throttle_seconds"`
	// SuspendAtJobStart selects whether a guest is suspended while a block job begins on one of
	// its disks: auto, always or never.
	SuspendAtJobStart string `toml:"suspend_at_job_start"`
	// AllowedPaths are permitted places of volumes outside pools (location.Rules).
	AllowedPaths []string `toml:"allowed_paths"`
	// NBDServers are the NBD servers over TCP, as HOST:PORT, with exports that may be volumes.
	NBDServers []string `toml:"nbd_servers"`
	// RBDClusters are the Ceph clusters, by id, with RBD images that may be volumes.
	RBDClusters rbd.Clusters `toml:"rbd_clusters"`
	// SharedPools are pools that have the same bytes on other hosts. Pools of type netfs need not
	// be listed.
	SharedPools []string `toml:"shared_pools"`
	// ConnectorDir is the directory of the installed connectors.
	ConnectorDir string `toml:"connector_dir"`
	// ConnectorPools are the pools of connectors, by name.
	ConnectorPools map[string]connector.PoolConfig `toml:"connector_pools"`

	// NoFile is the path of the default file if it is absent, otherwise "".
	NoFile string
	// HostID is set once it is known, from the state directory or the certificate.
	HostID string
}

// The values of suspend_at_job_start. With auto a guest is suspended if its QEMU could otherwise
// lose a write or crash.
const (
	SuspendAuto   = "auto"
	SuspendAlways = "always"
	SuspendNever  = "never"
)

const (
	defaultConfigFile = "/etc/volferry/volferryd.toml"
	// defaultOverlayMinFree is enough for some minutes of a busy guest's writes.
	defaultOverlayMinFree = 1 << 30
	// defaultOverlayThrottleSeconds is long enough for an operator to act, or for a fold to end.
	defaultOverlayThrottleSeconds = 600
)

// Default returns the settings of a daemon without a configuration file.
func Default() *Config {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	return &Config{
		Socket: "/run/volferry/volferryd.sock", Registry: "unix:///run/volferry/registry.sock",
		TLSCA: "/etc/volferry/tls/ca.crt", TLSCert: "/etc/volferry/tls/host.crt", TLSKey: "/etc/volferry/tls/host.key",
		LibvirtHook: guard.DefaultHook, LibvirtConfigDir: libvirt.DefaultDefinitionsDir, LibvirtStateDir: libvirt.DefaultStateDir,
		MetricsListen: "127.0.0.1:9643", StateDir: "/var/lib/volferry",
		HostName: name, LogLevel: "info", OverlayMinFreeBytes: defaultOverlayMinFree,
		OverlayThrottleSeconds: defaultOverlayThrottleSeconds,
		SuspendAtJobStart:      SuspendAuto, ConnectorDir: connector.DefaultDir,
	}
}

// Load reads the file and then the flags. The flags have precedence.
func Load(args []string, stderr io.Writer) (*Config, error) {
	program := settings.Program{Name: "volferryd", Usage: usage, File: defaultConfigFile, Stderr: stderr}
	loaded, err := settings.Load(program, args, Default, (*Config).flags)
	if err != nil {
		return nil, err
	}
	if len(loaded.Rest) > 0 {
		return nil, settings.Usagef("there is no use for the argument %q; see volferryd --help", loaded.Rest[0])
	}
	cfg := loaded.Config
	cfg.NoFile = loaded.NoFile
	cfg.HostName = cmp.Or(cfg.HostName, Default().HostName)
	if cfg.OverlayDir == "" {
		cfg.OverlayDir = filepath.Join(cfg.StateDir, "overlays")
	}
	if cfg.SaveDir == "" {
		cfg.SaveDir = filepath.Join(cfg.StateDir, "saves")
	}
	return cfg, nil
}

// SaveDir is the key of the directory for the memory of saved guests.
const SaveDir = "save_dir"

func (c *Config) flags(set *flag.FlagSet) {
	set.StringVar(&c.Socket, "socket", c.Socket, "Unix socket for volferryctl")
	set.StringVar(&c.SocketGroup, "socket-group", c.SocketGroup, "`group` that may use the socket; it is equal to root")
	set.StringVar(&c.Registry, "registry", c.Registry, "the registry, as unix:///path or https://host:7643 (`URL`); several of these for one registry that may be on several machines, with commas between them")
	set.StringVar(&c.TLSCA, "tls-ca", c.TLSCA, "`file` of the authority that the registry at https:// must be of")
	set.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "`file` of this host's certificate, which says its id and name")
	set.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "`file` of the key of the certificate")
	set.StringVar(&c.LibvirtSocket, "libvirt-socket", c.LibvirtSocket, "libvirt's socket (default libvirt-sock, else virtqemud-sock, in /run/libvirt)")
	set.StringVar(&c.LibvirtHook, "libvirt-hook", c.LibvirtHook, "where the guard hook is installed")
	set.StringVar(&c.LibvirtStateDir, "libvirt-state-dir", c.LibvirtStateDir, "`directory` in which libvirt keeps the NVRAM, snapshots and save images of domains, and the sockets of their processes")
	set.StringVar(&c.LibvirtConfigDir, "libvirt-config-dir", c.LibvirtConfigDir, "`directory` in which libvirt keeps the definitions of domains")
	set.StringVar(&c.MetricsListen, "metrics-listen", c.MetricsListen, "`address` of /metrics; empty or off for none")
	set.StringVar(&c.StateDir, "state-dir", c.StateDir, "`directory` of the journal and the guards")
	set.StringVar(&c.OverlayDir, "overlay-dir", c.OverlayDir, "`directory` of overlays (default overlays in the state directory)")
	set.BoolVar(&c.OverlayDirShared, "overlay-dir-shared", c.OverlayDirShared, "other hosts see the overlay directory at the same path; each has a directory with its id there")
	set.StringVar(&c.SaveDir, "save-dir", c.SaveDir, "`directory` of the memory of guests that are saved while a volume moves (default saves in the state directory)")
	set.BoolVar(&c.SaveDirInMemory, "save-dir-in-memory", c.SaveDirInMemory, "the save directory may be on a tmpfs: what is saved there is lost if this host goes down meanwhile")
	set.StringVar(&c.HostName, "host-name", c.HostName, "name of this host in the registry")
	set.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	set.Int64Var(&c.OverlayMinFreeBytes, "overlay-min-free-bytes", c.OverlayMinFreeBytes, "what must be free for overlays before a migration starts")
	set.Int64Var(&c.OverlayThrottleBelowBytes, "overlay-throttle-below-bytes", c.OverlayThrottleBelowBytes, "how much must be free for overlays, or guests that write to them are slowed down; 0 slows none")
	set.Int64Var(&c.OverlayThrottleSeconds, "overlay-throttle-seconds", c.OverlayThrottleSeconds, "how long what is free for overlays is to last at least while guests are slowed down")
	set.StringVar(&c.SuspendAtJobStart, "suspend-at-job-start", c.SuspendAtJobStart, "whether a guest is suspended while QEMU begins to copy: auto, always or never")
	set.Func("allowed-paths", "`directories` and devices for volumes besides the active pools, separated by colons (default none)", func(v string) error {
		c.AllowedPaths = filepath.SplitList(v)
		return nil
	})
	set.Func("nbd-servers", "`addresses` (HOST:PORT) of NBD servers over TCP whose exports may be volumes, separated by commas (default none)", func(v string) error {
		c.NBDServers = strings.Split(v, ",")
		return nil
	})
	set.StringVar(&c.ConnectorDir, "connector-dir", c.ConnectorDir, "`directory` in which connectors are installed; their pools are in the configuration file")
	set.Func("shared-pools", "`names` of pools in which other hosts see the same bytes, separated by commas", func(v string) error {
		c.SharedPools = strings.Split(v, ",")
		return nil
	})
}

// OverTLS reports whether the registry is reached over TLS and knows this host by its certificate.
func (c *Config) OverTLS() bool { return strings.HasPrefix(c.Registry, "https://") }

// Check refuses a configuration that could not work, or would be unsafe.
func (c *Config) Check() error {
	if err := cmp.Or(
		c.CheckRegistry(),
		c.checkSharedPools(),
		c.CheckConnectors(),
		c.CheckClusters(),
		settings.CheckPath("socket", c.Socket),
		settings.CheckPath("state_dir", c.StateDir),
		settings.CheckPath("overlay_dir", c.OverlayDir),
		settings.CheckPath(SaveDir, c.SaveDir),
		settings.CheckPath("libvirt_hook", c.LibvirtHook),
		settings.CheckPath("libvirt_config_dir", c.LibvirtConfigDir),
		settings.CheckPath("libvirt_state_dir", c.LibvirtStateDir),
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
		if err := location.CheckEntry(path); err != nil {
			return fmt.Errorf("allowed_paths: %w", err)
		}
	}
	if err := CheckNBDServers(c.NBDServers); err != nil {
		return err
	}
	if c.OverlayMinFreeBytes < 0 {
		return fmt.Errorf("overlay_min_free_bytes is %d; it must not be negative", c.OverlayMinFreeBytes)
	}
	if c.OverlayThrottleBelowBytes < 0 {
		return fmt.Errorf("overlay_throttle_below_bytes is %d; it must not be negative", c.OverlayThrottleBelowBytes)
	}
	if c.OverlayThrottleSeconds < 1 {
		return fmt.Errorf("overlay_throttle_seconds is %d; it must be at least 1", c.OverlayThrottleSeconds)
	}
	if !slices.Contains([]string{SuspendAuto, SuspendAlways, SuspendNever}, c.SuspendAtJobStart) {
		return fmt.Errorf("suspend_at_job_start is %q; it must be auto, always or never", c.SuspendAtJobStart)
	}
	return cmp.Or(c.CheckOverlayDir(), c.CheckSaveDir())
}

// JobStart returns the faults of this QEMU version that require a suspended guest when a block job
// begins.
func (c *Config) JobStart(qemu hv.Version) hv.JobStart {
	switch c.SuspendAtJobStart {
	case SuspendAlways:
		return hv.JobStart{LosesWrites: true, KillsGuest: true}
	case SuspendNever:
		return hv.JobStart{}
	}
	return hv.JobStartOf(qemu)
}

// Warnings returns warnings about settings that may not be intended.
func (c *Config) Warnings() (out []string) {
	for _, dir := range c.AllowedPaths {
		if who := location.OpenTo(dir); who != "" {
			out = append(out, fmt.Sprintf("allowed_paths has %s, where %s could put another file in the place of a guest's disk", dir, who))
		}
	}
	if why := c.OverlaysNotShared(); why != "" {
		out = append(out, why)
	}
	return append(out, c.WarnConnectors()...)
}

// CheckRegistry refuses an invalid registry URL, and TLS files that do not belong to a host.
func (c *Config) CheckRegistry() error {
	if !c.OverTLS() {
		if !strings.HasPrefix(c.Registry, "unix:///") || client.IsList(c.Registry) {
			return fmt.Errorf("registry is %q; it must be unix:///path or https://host:7643, or several of these URLs with commas between them", c.Registry)
		}
		return nil
	}
	if err := cmp.Or(
		settings.CheckPath("tls_ca", c.TLSCA), settings.CheckPath("tls_cert", c.TLSCert), settings.CheckPath("tls_key", c.TLSKey),
	); err != nil {
		return err
	}
	_, err := client.NewRegistry(c.Registry, client.TLS(c.TLSCA, c.TLSCert, c.TLSKey))
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	_, err = c.Identity()
	return err
}

// Identity returns this host's identity from its certificate.
func (c *Config) Identity() (mtls.Identity, error) {
	id, err := mtls.IdentityOfFile(c.TLSCert)
	if err != nil {
		return id, fmt.Errorf("tls_cert: %w", err)
	}
	if id.Kind != mtls.KindHost {
		return id, fmt.Errorf("tls_cert: %s is of %s, and a daemon needs one of a host; make it with volferry-registry issue-cert host NAME", c.TLSCert, id)
	}
	return id, nil
}

func (c *Config) checkSharedPools() error {
	for i, name := range c.SharedPools {
		if strings.TrimSpace(name) != name || name == "" {
			return fmt.Errorf("shared_pools has %q, which is no name of a pool", name)
		}
		if slices.Contains(c.SharedPools[:i], name) {
			return fmt.Errorf("shared_pools has %q twice", name)
		}
	}
	return nil
}

// CheckConnectors refuses invalid pools of connectors.
func (c *Config) CheckConnectors() error {
	if err := connector.CheckPools(c.ConnectorPools); err != nil {
		return fmt.Errorf("connector_pools: %w", err)
	}
	return settings.CheckPath("connector_dir", c.ConnectorDir)
}

// CheckClusters refuses invalid Ceph clusters.
func (c *Config) CheckClusters() error {
	if err := c.RBDClusters.Check(); err != nil {
		return fmt.Errorf("rbd_clusters: %w", err)
	}
	return nil
}

// WarnConnectors returns warnings about missing or unsafe connectors. These are no errors, because
// only their pools cannot be used.
func (c *Config) WarnConnectors() (out []string) {
	for _, pool := range slices.Sorted(maps.Keys(c.ConnectorPools)) {
		if _, err := connector.Find(c.ConnectorDir, c.ConnectorPools[pool].Connector()); err != nil {
			out = append(out, fmt.Sprintf("connector_pools: pool %s cannot be used: %v", pool, err))
		}
	}
	return out
}

// Overlays returns the directory of this host's overlays. In a shared directory each host has its
// own subdirectory.
func (c *Config) Overlays() string {
	if !c.OverlayDirShared {
		return c.OverlayDir
	}
	return filepath.Join(c.OverlayDir, c.HostID)
}

// OverlaysNotShared returns why overlays are only on this host although overlay_dir_shared is set,
// or "".
func (c *Config) OverlaysNotShared() string {
	if !c.OverlayDirShared {
		return ""
	}
	return notShared(c.OverlayDir)
}

// CheckOverlayDir refuses an overlay directory that a reboot would empty: during a move only the
// overlay has the guest's latest writes.
func (c *Config) CheckOverlayDir() error {
	if c.OverlayDirShared {
		if err := checkSharedOverlayDir(c.OverlayDir, c.StateDir); err != nil {
			return err
		}
	}
	return onDisk("overlay_dir", c.OverlayDir, "a reboot would lose what guests wrote while their volumes moved")
}

// CheckSaveDir refuses a save directory that a reboot would empty, unless SaveDirInMemory is set:
// only the save image has the memory of a saved guest.
func (c *Config) CheckSaveDir() error {
	if c.SaveDirInMemory {
		return nil
	}
	return onDisk(SaveDir, c.SaveDir, "a reboot would lose what guests that are saved there had in memory; save_dir_in_memory = true allows it")
}

func onDisk(key, path, why string) error {
	dir := path
	inMemory, err := location.InMemory(dir)
	for errors.Is(err, unix.ENOENT) && dir != "/" { // the directory does not exist yet
		dir = filepath.Dir(dir)
		inMemory, err = location.InMemory(dir)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", key, path, err)
	}
	if inMemory {
		return fmt.Errorf("%s %s is in memory (tmpfs); %s", key, path, why)
	}
	return nil
}
