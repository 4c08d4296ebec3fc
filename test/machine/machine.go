// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab"
)

// Config describes a machine.
type Config struct {
	// Name is its hostname.
	Name string
	// Binds are directories of the host of the test by the path at which the machine has
	// them. A directory that two machines have is their shared storage.
	Binds map[string]string
	// Hosts are the lines of /etc/hosts besides those of the machine itself: addresses
	// by name.
	Hosts map[string]string
	// LoopDevices gives it the nodes of loop devices. The devices are the kernel's: those
	// that others use are not to be touched, and which one is free only the kernel knows.
	LoopDevices bool
}

// Machine is one machine. What is in its file system stays over its boots. Its methods
// may be called from one goroutine at a time, but for Exec, Command, Path and Journal,
// which may be called from any while none of the others is.
type Machine struct {
	Name string

	dir       string
	namespace *namespace
	release   func() error
	loops     bool

	group  group
	nspawn *exec.Cmd
	exited chan struct{} // closed when nspawn has been waited for; nil before the first boot
	leader int           // PID 1 of the machine, as the host sees it; 0 while it is off
}

// New makes a machine that is off, with its state in dir, which must not be there yet.
// Close must be called.
func New(ctx context.Context, dir string, cfg Config) (*Machine, error) {
	release, err := lab.ClaimDir(dir) // which ends what killed tests left
	if err != nil {
		return nil, err
	}
	sweepOnce()
	m := &Machine{Name: cfg.Name, dir: dir, release: release, loops: cfg.LoopDevices}
	if err := m.mount(ctx, cfg); err != nil {
		return nil, fmt.Errorf("make machine %s: %w", cfg.Name, errors.Join(err, m.release()))
	}
	if m.namespace, err = newNamespace(ctx); err != nil {
		return nil, fmt.Errorf("make machine %s: %w", cfg.Name, errors.Join(err, m.release()))
	}
	return m, nil
}

// sweepOnce removes the cgroups that killed tests left, once in a process. What cannot be removed
// is reported, and keeps nobody from working.
var sweepOnce = sync.OnceFunc(func() {
	if err := sweepGroups(); err != nil {
		fmt.Fprintf(os.Stderr, "machine: what a killed test left is still there: %v\n", err)
	}
})

// mount makes the file system of the machine.
func (m *Machine) mount(ctx context.Context, cfg Config) error {
	base := filepath.Join(cacheDir(), "root")
	base, err := filepath.EvalSymlinks(base)
	if err != nil {
		return fmt.Errorf("find the root of the machines (run test/machine/install.sh): %w", err)
	}
	upper, work, root, state := filepath.Join(m.dir, "upper"), filepath.Join(m.dir, "work"), filepath.Join(m.dir, "root"), filepath.Join(m.dir, "var")
	for _, d := range []string{upper, work, root} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	// Images and databases are on a real file system: what is under test opens them, locks
	// them and asks the kernel for them.
	if out, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(base, "var"), state).CombinedOutput(); err != nil {
		return fmt.Errorf("copy /var: %w: %s", err, out)
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, upper, work)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	binds := map[string]string{"/var": state}
	maps.Copy(binds, cfg.Binds)
	for _, at := range slices.Sorted(maps.Keys(binds)) {
		if err := errors.Join(os.MkdirAll(m.Path(at), 0o755), unix.Mount(binds[at], m.Path(at), "", unix.MS_BIND, "")); err != nil {
			return fmt.Errorf("mount %s at %s: %w", binds[at], at, err)
		}
	}
	hosts := "127.0.0.1 localhost\n127.0.1.1 " + cfg.Name + "\n"
	for _, name := range slices.Sorted(maps.Keys(cfg.Hosts)) {
		hosts += cfg.Hosts[name] + " " + name + "\n"
	}
	return errors.Join(
		os.WriteFile(m.Path("/etc/hostname"), []byte(cfg.Name+"\n"), 0o644),
		os.WriteFile(m.Path("/etc/hosts"), []byte(hosts), 0o644),
	)
}

// Path is where the test sees a file of the machine, whether it runs or not. It is no
// good for what is in /run, /tmp, /proc, /sys and /dev, and for a path with an absolute
// symbolic link in it.
func (m *Machine) Path(path string) string { return filepath.Join(m.dir, "root", path) }
