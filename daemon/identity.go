// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/shell"
)

type host struct{ id, name string }

// thisHost returns this host's identity. Over TLS it is from the host's certificate. Otherwise it
// is the host's own id and the configured name.
func thisHost(cfg *config.Config) (host, error) {
	if !cfg.OverTLS() {
		id, err := hostID(cfg.StateDir)
		return host{id, cfg.HostName}, err
	}
	cert, err := cfg.Identity()
	if err != nil {
		return host{}, err
	}
	return host{cert.ID, cert.Name}, holdID(cfg, cert.ID)
}

// holdID gives the state directory the id of the certificate's host. It refuses the directory of
// another host, because that host's journal and overlays are in it. It replaces an id that no
// registry has ever seen, which a daemon has made before its certificate was installed.
func holdID(cfg *config.Config, id string) error {
	path := idFile(cfg.StateDir)
	kept, err := readID(path)
	if err == nil && kept == id {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	registered, err := uplink.EverRegistered(cfg.StateDir)
	if err != nil {
		return fmt.Errorf("look whether %s is known to a registry: %w", path, err)
	}
	if kept != "" && registered {
		return fmt.Errorf("%s says host %s and the certificate %s is of host %s: the journal in %s is the other host's; use the certificate of %s, which `%s` makes, or give this host a state_dir of its own",
			path, kept, cfg.TLSCert, id, cfg.StateDir, kept, shell.Line("volferry-registry", "issue-cert", "host", "NAME", "--id", kept))
	}
	return atomicfile.Write(path, []byte(id+"\n"), 0o644)
}

// hostID returns the id of this host. It makes the id once, and stores it in the journal's
// directory.
func hostID(stateDir string) (string, error) {
	path := idFile(stateDir)
	id, err := readID(path)
	if errors.Is(err, fs.ErrNotExist) {
		id = uuid.NewString()
		return id, atomicfile.Write(path, []byte(id+"\n"), 0o644)
	}
	return id, err
}

func idFile(stateDir string) string { return filepath.Join(stateDir, "host-id") }

func readID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the id of this host: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return "", fmt.Errorf("the id of this host in %s is no UUID; restore it from a backup: %w", path, err)
	}
	return id.String(), nil
}
