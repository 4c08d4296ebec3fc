// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/BurntSushi/toml"

	"github.com/volferry/volferry/internal/service"
)

const defaultConfigFile = "/etc/volferry/registry.toml"

// config is the configuration of the registry: the file's keys are the flags'
// names with underscores.
type config struct {
	Socket        string `toml:"socket"`
	SocketGroup   string `toml:"socket_group"`
	DB            string `toml:"db"`
	MetricsListen string `toml:"metrics_listen"`
	LogLevel      string `toml:"log_level"`
}

func defaultConfig() *config {
	return &config{
		Socket:        "/run/volferry/registry.sock",
		DB:            "/var/lib/volferry-registry/registry.db",
		MetricsListen: "127.0.0.1:9644",
		LogLevel:      "info",
	}
}

// loadConfig reads the file and then the flags, which win, and returns what
// is left of args.
func loadConfig(args []string, stderr io.Writer) (*config, []string, error) {
	file := defaultConfigFile
	given := defaultConfig().flagSet(&file, stderr)
	if err := given.Parse(args); err != nil {
		return nil, nil, err
	}
	named := false
	given.Visit(func(f *flag.Flag) { named = named || f.Name == "config" })
	cfg := defaultConfig()
	if err := cfg.readFile(file, named); err != nil {
		return nil, nil, err
	}
	// The flags once more, onto what the file says.
	again := cfg.flagSet(&file, stderr)
	if err := again.Parse(args); err != nil {
		return nil, nil, err
	}
	return cfg, again.Args(), nil
}

func (c *config) flagSet(file *string, stderr io.Writer) *flag.FlagSet {
	set := flag.NewFlagSet("volferry-registry", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		fmt.Fprint(stderr, usage)
		set.PrintDefaults()
	}
	set.StringVar(file, "config", *file, "configuration `file` (TOML); the default may be absent")
	set.StringVar(&c.Socket, "socket", c.Socket, "Unix socket of the API")
	set.StringVar(&c.SocketGroup, "socket-group", c.SocketGroup, "`group` that may use the socket and change things; without it root and the registry's own user")
	set.StringVar(&c.DB, "db", c.DB, "database `file`, made if it is missing")
	set.StringVar(&c.MetricsListen, "metrics-listen", c.MetricsListen, "`address` of /metrics; empty or off for none")
	set.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	return set
}

// readFile reads the file into c. One that is named must exist.
func (c *config) readFile(path string, named bool) error {
	meta, err := toml.DecodeFile(path, c)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read configuration %s: %w", path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return fmt.Errorf("read configuration %s: there is no key %s", path, unknown[0])
	}
	return nil
}

// check refuses a configuration that could not work.
func (c *config) check() error {
	for _, setting := range []struct{ name, path string }{{"socket", c.Socket}, {"db", c.DB}} {
		if !filepath.IsAbs(setting.path) || filepath.Clean(setting.path) != setting.path {
			return fmt.Errorf("%s is %q; it must be a clean absolute path", setting.name, setting.path)
		}
	}
	if c.metrics() {
		if _, _, err := net.SplitHostPort(c.MetricsListen); err != nil {
			return fmt.Errorf("metrics_listen is %q; it must be address:port, or off", c.MetricsListen)
		}
	}
	if _, err := c.groupID(); err != nil {
		return err
	}
	_, err := service.NewLogger(io.Discard, c.LogLevel)
	return err
}

// metrics says whether there shall be a metrics server.
func (c *config) metrics() bool { return c.MetricsListen != "" && c.MetricsListen != "off" }

// groupID resolves the group of the socket; -1 for none.
func (c *config) groupID() (int, error) {
	if c.SocketGroup == "" {
		return -1, nil
	}
	g, err := user.LookupGroup(c.SocketGroup)
	if err != nil {
		return -1, fmt.Errorf("socket_group: %w", err)
	}
	return strconv.Atoi(g.Gid)
}
