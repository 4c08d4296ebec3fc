// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"flag"
	"io"

	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/registry/internal/server"
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
	program := settings.Program{Name: server.Program, Usage: usage, File: defaultConfigFile, Stderr: stderr}
	return settings.Load(program, args, defaultConfig, (*config).flags)
}

func (c *config) flags(set *flag.FlagSet) {
	set.StringVar(&c.Socket, "socket", c.Socket, "Unix socket of the API")
	set.StringVar(&c.SocketGroup, "socket-group", c.SocketGroup, "`group` that may use the socket and change things; without it root and the registry's own user")
	set.StringVar(&c.DB, "db", c.DB, "database `file`, made if it is missing")
	set.StringVar(&c.MetricsListen, "metrics-listen", c.MetricsListen, "`address` of /metrics; empty or off for none")
	set.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
}

// check refuses a configuration that could not work.
func (c *config) check() error {
	_, groupErr := settings.GroupID(c.SocketGroup)
	_, logErr := service.NewLogger(io.Discard, c.LogLevel)
	return cmp.Or(
		settings.CheckPath("socket", c.Socket),
		settings.CheckPath("db", c.DB),
		settings.CheckListen("metrics_listen", c.MetricsListen),
		groupErr,
		logErr,
	)
}
