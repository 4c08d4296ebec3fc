// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Site is one host with its registry beside it, joined by a Unix socket: what
// the packages set up by default.
type Site struct {
	*Host

	registry *Registry
}

// Start starts a libvirtd, a registry and a daemon with their state below dir,
// whose path must be short (lab.TempDir). Bin is the directory of the built
// programs. Close must be called.
func Start(ctx context.Context, dir, bin string) (*Site, error) {
	h, err := NewHost(ctx, dir, bin, "lab")
	if err != nil {
		return nil, err
	}
	s := &Site{Host: h, registry: NewRegistry(dir, bin)}
	h.Registry = "unix://" + s.registry.Socket()
	if err := s.StartRegistry(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.StartDaemon(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// StartRegistry starts the registry, with these additional variables in its
// environment, and returns when it answers.
func (s *Site) StartRegistry(ctx context.Context, env ...string) error {
	return s.registry.Start(ctx, env...)
}

// RegistryCaller is a user of volferryctl at the registry's socket.
func (s *Site) RegistryCaller() Caller { return s.registry.Caller() }

// BackUpRegistry copies the registry's database, and returns the file.
func (s *Site) BackUpRegistry(ctx context.Context) (string, error) { return s.registry.Backup(ctx) }

// PutBackRegistry puts a backup in the place of the registry's database.
func (s *Site) PutBackRegistry(ctx context.Context, file string) error {
	return s.registry.PutBack(ctx, file)
}

// AcceptRestore says that the backup that was put back was looked into.
func (s *Site) AcceptRestore(ctx context.Context) error { return s.registry.AcceptRestore(ctx) }

// KillRegistry kills the registry with SIGKILL.
func (s *Site) KillRegistry() { s.registry.Kill() }

// RegistryDied returns when the registry is gone by itself, as at a fault point.
func (s *Site) RegistryDied(ctx context.Context) error { return s.registry.Died(ctx) }

// Logs are the ends of the programs' logs, and of the guests' logs, for a test that failed.
func (s *Site) Logs() string {
	logs := []string{s.registry.Log(), s.Log()}
	if s.Libvirtd != nil {
		logs = append(logs, s.Libvirtd.GuestLogs()...)
	}
	return Tails(logs...)
}

// Tails are the ends of logs, each under its name.
func Tails(logs ...string) string {
	var out strings.Builder
	for _, path := range logs {
		fmt.Fprintf(&out, "--- %s\n%s\n", filepath.Base(path), tail(path))
	}
	return out.String()
}

// Close stops everything. Guests must be closed before. An audit trail that is not what the
// registry has written is an error.
func (s *Site) Close() error {
	err := s.Host.Close()
	if s.registry.program == nil {
		return err
	}
	s.registry.Stop()
	return errors.Join(err, s.registry.verifyTrail(context.Background()))
}
