// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/registry/internal/server"
)

const (
	defaultConfigFile = "/etc/volferry/registry.toml"
	// listenAuto is defaultListen if there is a server certificate, else off: a registry of one
	// host needs no network.
	listenAuto    = "auto"
	defaultListen = ":7643"
)

// config is the registry's configuration. The file's keys are the flags' names with underscores.
type config struct {
	Socket      string `toml:"socket"`
	SocketGroup string `toml:"socket_group"`
	Listen      string `toml:"listen"`
	TLSDir      string `toml:"tls_dir"`
	// CADir is the directory of the authority's key; "" means TLSDir.
	CADir         string `toml:"ca_dir"`
	DB            string `toml:"db"`
	MetricsListen string `toml:"metrics_listen"`
	LogLevel      string `toml:"log_level"`
	// Limits of TLS connections per peer.
	MaxHandshakes           int `toml:"max_handshakes"`
	MaxHandshakesPerAddress int `toml:"max_handshakes_per_address"`
	MaxConnectionsPerCaller int `toml:"max_connections_per_caller"`
	// SharedPools are the site's shared pools; nil means the pools that hosts report as shared.
	SharedPools sharedPools `toml:"shared_pools"`
}

func defaultConfig() *config {
	return &config{
		Socket:        "/run/volferry/registry.sock",
		Listen:        listenAuto,
		TLSDir:        "/var/lib/volferry-registry/tls",
		DB:            "/var/lib/volferry-registry/registry.db",
		MetricsListen: "127.0.0.1:9644",
		LogLevel:      "info",

		// After a restart of the registry all hosts reconnect at once, and some wait briefly.
		MaxHandshakes:           1024,
		MaxHandshakesPerAddress: 64,
		// A daemon has a connection for each unanswered request.
		MaxConnectionsPerCaller: 256,
	}
}

// loadConfig reads the file and then the flags, which have priority.
func loadConfig(args []string, usage string, stderr io.Writer) (*settings.Loaded[config], error) {
	program := settings.Program{Name: server.Program, Usage: usage, File: defaultConfigFile, Stderr: stderr}
	return settings.Load(program, args, defaultConfig, (*config).flags)
}

func (c *config) flags(set *flag.FlagSet) {
	set.StringVar(&c.Socket, "socket", c.Socket, "Unix socket of the API")
	set.StringVar(&c.SocketGroup, "socket-group", c.SocketGroup, "`group` that may use the socket and change things; without it root and the registry's own user")
	set.StringVar(&c.Listen, "listen", c.Listen, "`address` of the API for other hosts, over TLS; auto is "+defaultListen+" where tls-dir has a server certificate, empty or off is none")
	set.StringVar(&c.TLSDir, "tls-dir", c.TLSDir, "`directory` of the server certificate, the authority and the deny-list; see init-ca")
	set.StringVar(&c.CADir, "ca-dir", c.CADir, "`directory` of the authority's key, which init-ca and issue-cert need and the registry does not; empty is tls-dir")
	set.StringVar(&c.DB, "db", c.DB, "database `file`, made if it is missing")
	set.StringVar(&c.MetricsListen, "metrics-listen", c.MetricsListen, "`address` of /metrics; empty or off for none")
	set.IntVar(&c.MaxHandshakes, "max-handshakes", c.MaxHandshakes, "`number` of TLS handshakes at a time; connections above it wait to be accepted")
	set.IntVar(&c.MaxHandshakesPerAddress, "max-handshakes-per-address", c.MaxHandshakesPerAddress, "`number` of TLS handshakes at a time from one address; connections above it are closed")
	set.IntVar(&c.MaxConnectionsPerCaller, "max-connections-per-caller", c.MaxConnectionsPerCaller, "`number` of TLS connections of one host or operator; connections above it are closed")
	set.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	set.Func("shared-pools", "`pools` of this site that several hosts share, separated by commas, each with its hosts: nfs=alpha+beta; without hosts any host that says so is believed, and where this is set none is believed of other pools", func(v string) error {
		return c.SharedPools.parse(strings.FieldsFunc(v, func(r rune) bool { return r == ',' }))
	})
}

func (c *config) check() error {
	_, groupErr := settings.GroupID(c.SocketGroup)
	_, logErr := service.NewLogger(io.Discard, c.LogLevel)
	return cmp.Or(
		settings.CheckPath("socket", c.Socket),
		settings.CheckPath("tls_dir", c.TLSDir),
		c.checkCADir(),
		c.checkListen(),
		settings.CheckPath("db", c.DB),
		settings.CheckListen("metrics_listen", c.MetricsListen),
		c.SharedPools.check(),
		checkMost("max_handshakes", c.MaxHandshakes),
		checkMost("max_handshakes_per_address", c.MaxHandshakesPerAddress),
		checkMost("max_connections_per_caller", c.MaxConnectionsPerCaller),
		groupErr,
		logErr,
	)
}

func (c *config) checkCADir() error {
	if c.CADir == "" {
		return nil
	}
	return settings.CheckPath("ca_dir", c.CADir)
}

func (c *config) keyDir() string { return cmp.Or(c.CADir, c.TLSDir) }

func checkMost(name string, n int) error {
	if n < 1 {
		return fmt.Errorf("%s is %d; it must be at least 1, or nobody gets in", name, n)
	}
	return nil
}

func (c *config) checkListen() error {
	address, err := c.address()
	if err != nil || address == "" {
		return err
	}
	if err := settings.CheckListen("listen", address); err != nil {
		return err
	}
	_, err = c.gate(slog.New(slog.DiscardHandler))
	return err
}

func (c *config) address() (string, error) {
	if !settings.Listens(c.Listen) {
		return "", nil
	}
	if c.Listen != listenAuto {
		return c.Listen, nil
	}
	switch _, err := os.Stat(filepath.Join(c.TLSDir, mtls.ServerCertFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for the server certificate: %w", err)
	}
	return defaultListen, nil
}

func (c *config) gate(log *slog.Logger) (*mtls.Gate, error) {
	gate, err := mtls.NewGate(c.TLSDir, log)
	if err != nil {
		return nil, fmt.Errorf("listen is %s and the files in %s are not right; %s init-ca makes them: %w", c.Listen, c.TLSDir, server.Program, err)
	}
	return gate, nil
}
