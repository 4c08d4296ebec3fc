// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/volferry/volferry/test/lab"
)

// Registry is a volferry-registry with its state in a directory.
type Registry struct {
	Dir string
	// Listen is the address for hosts, with TLS; empty for none.
	Listen string
	// Flags are given to it as it starts, beside what says where it is.
	Flags []string

	bin     string
	program *program
	backups int // that were made of it
}

// NewRegistry prepares a registry with its state in dir. Bin is the directory of
// the built programs.
func NewRegistry(dir, bin string) *Registry { return &Registry{Dir: dir, bin: bin} }

// Socket is the registry's own socket, of its local administrator.
func (r *Registry) Socket() string { return filepath.Join(r.Dir, "registry.sock") }

// DB is the registry's database.
func (r *Registry) DB() string { return filepath.Join(r.Dir, "registry.db") }

// Log is the registry's log.
func (r *Registry) Log() string { return filepath.Join(r.Dir, "registry.log") }

// TLSDir is the directory of the site's authority.
func (r *Registry) TLSDir() string { return filepath.Join(r.Dir, "tls") }

// InitTLS makes the site's authority and the registry's certificate, and has the
// registry listen for hosts on a free port of the loopback address from its next
// start on.
func (r *Registry) InitTLS(ctx context.Context) (err error) {
	if r.Listen, err = lab.FreeAddress(ctx); err != nil {
		return err
	}
	_, err = r.Run(ctx, "init-ca", "--tls-dir", r.TLSDir(), "--server-name", "127.0.0.1")
	return err
}

// URL is the registry as hosts see it over TLS.
func (r *Registry) URL() string { return "https://" + r.Listen }

// Issue issues a certificate of a kind (host, operator) into dir.
func (r *Registry) Issue(ctx context.Context, dir, kind, name string, flags ...string) error {
	_, err := r.Run(ctx, append([]string{"issue-cert", "--tls-dir", r.TLSDir(), "--out", dir}, append(flags, kind, name)...)...)
	return err
}

// Run runs a command of volferry-registry to its end and returns what it
// printed.
func (r *Registry) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "volferry-registry"), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("volferry-registry %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Start starts the registry, with these additional variables in its environment,
// and returns when it answers.
func (r *Registry) Start(ctx context.Context, env ...string) error {
	config, err := emptyConfig(r.Dir)
	if err != nil {
		return err
	}
	args := []string{"--config", config, "--socket", r.Socket(), "--db", r.DB(), "--metrics-listen", "off"}
	if r.Listen != "" {
		args = append(args, "--listen", r.Listen, "--tls-dir", r.TLSDir())
	}
	args = append(args, r.Flags...)
	p, err := start(ctx, filepath.Join(r.bin, "volferry-registry"), r.Log(), env, args...)
	if err != nil {
		return err
	}
	r.program = p
	return p.untilReady(ctx)
}

// Use has the programs in the directory bin be those of the registry, from their next
// start on.
func (r *Registry) Use(bin string) { r.bin = bin }

// Kill kills the registry with SIGKILL and returns when it is gone.
func (r *Registry) Kill() { r.program.kill() }

// Died returns when the registry is gone by itself, as at a fault point.
func (r *Registry) Died(ctx context.Context) error { return r.program.wait(ctx) }

// PID is the process id of the registry, once it was started.
func (r *Registry) PID() int { return r.program.pid() }

// Signal sends a signal to the registry, SIGSTOP and SIGCONT for example.
func (r *Registry) Signal(s syscall.Signal) error { return r.program.cmd.Process.Signal(s) }

// Stop asks the registry to end, and returns when it has.
func (r *Registry) Stop() {
	if r.program != nil {
		r.program.stop()
	}
}

// Caller is a user of volferryctl at the registry's socket.
func (r *Registry) Caller() Caller { return Caller{bin: r.bin, Socket: r.Socket()} }

// emptyConfig is an empty configuration in dir: what a host's own may say is
// not for the tests.
func emptyConfig(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	path := filepath.Join(dir, "empty.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return path, nil
}
