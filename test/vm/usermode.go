// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab"
)

// SecurityModule is a security module of the kernel that confines programs.
type SecurityModule string

// The modules that Debian's kernel of user-mode Linux has. SELinux enforces the policy of Debian.
const (
	AppArmor SecurityModule = "apparmor"
	SELinux  SecurityModule = "selinux"
	// Unconfined is a kernel with neither.
	Unconfined SecurityModule = "none"
)

// UserMode is a machine of user-mode Linux: its kernel is a process of this host, and so it is as
// fast as this host. It has one processor, no NVMe over TCP, and systemd, which has started
// libvirtd and the other programs of Debian when the command begins.
type UserMode struct {
	dir      string
	security SecurityModule
}

// NewUserMode returns the machine with a security module and with the release of Debian that
// usermode/install.sh has made, where VOLFERRY_MACHINE_SUITE names the release. It skips the test,
// and prints why, where there is none; with VOLFERRY_LAB=require in the environment, as in CI, it
// fails instead.
func NewUserMode(tb testing.TB, security SecurityModule) *UserMode {
	tb.Helper()
	machine, err := FindUserMode(security)
	if err != nil {
		lab.SkipOrFail(tb, err.Error())
	}
	return machine
}

// FindUserMode is NewUserMode for a program that is no test. It returns an error where there is no
// machine.
func FindUserMode(security SecurityModule) (*UserMode, error) {
	name := "usermode"
	if suite := os.Getenv("VOLFERRY_MACHINE_SUITE"); suite != "" && suite != "bookworm" {
		name += "-" + suite
	}
	dir, err := findCache("VOLFERRY_USERMODE_CACHE", name, "test/vm/usermode/install.sh")
	return &UserMode{dir: dir, security: security}, err
}

// withLibrary mounts the C library of the kernel's release over the one of this host, for the
// kernel alone, and runs the kernel. The mounts of other tests must not stay in its namespace: they
// would keep the loop devices of these tests.
const withLibrary = `set -e
mount --make-rprivate /
grep '^/dev/loop' /proc/self/mounts | cut -d ' ' -f 2 | xargs -r umount --lazy
mount --bind "$1" "$2"
shift 2
exec "$@"`

// Disk implements Machine. The machine's root is on its first disk.
func (m *UserMode) Disk(n int) string { return "/dev/ubd" + string(rune('b'+n)) }

// Run implements Machine.
func (m *UserMode) Run(ctx context.Context, dir string, cfg Config, out io.Writer) error {
	command := filepath.Join(dir, "command")
	if err := os.Mkdir(command, 0o700); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	if err := os.WriteFile(filepath.Join(command, "run"), []byte(m.commandScript(cfg)), 0o700); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	disks, err := makeDisks(dir, cfg.DiskBytes)
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	library, err := filepath.Glob(filepath.Join(m.dir, "kernel/usr/lib/*-linux-gnu"))
	if err != nil || len(library) != 1 {
		return fmt.Errorf("boot: there is no C library below %s: %v, %w", m.dir, library, err)
	}
	args := []string{
		"-c", withLibrary, "sh", library[0], filepath.Join("/usr/lib", filepath.Base(library[0])),
		filepath.Join(m.dir, "kernel/usr/bin/linux.uml"),
		// What the machine writes to its first disk is in a file of its own.
		"ubd0=" + filepath.Join(dir, "written") + "," + filepath.Join(m.dir, "image"), "root=/dev/ubda", "rw",
		"mem=" + strconv.Itoa(cfg.memoryMiB()) + "M", "umid=" + filepath.Base(dir),
		"log_buf_len=16M", "con0=null,fd:1", "con=null", "ssl=null", "console=tty0", "quiet", "systemd.show_status=0",
		"command=" + command,
	}
	for i, disk := range disks {
		args = append(args, fmt.Sprintf("ubd%d=%s", i+1, disk))
	}
	switch m.security {
	case AppArmor:
		args = append(args, "security=apparmor", "apparmor=1")
	case SELinux:
		args = append(args, "security=selinux", "selinux=1", "enforcing=1", "audit_backlog_limit=8192")
	case Unconfined:
		args = append(args, "apparmor=0", "selinux=0")
	}
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Env = append(os.Environ(), "TMPDIR=/dev/shm") // for the machine's memory
	cmd.Stdout = struct{ io.Writer }{out}             // a pipe: the console is no file
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the machine: %w", err)
	}
	return exitStatus(filepath.Join(command, "exit"))
}

// commandScript is what a machine runs: it mounts the shares, and becomes the command.
func (m *UserMode) commandScript(cfg Config) string {
	options := ""
	if m.security == SELinux {
		options = ",context=system_u:object_r:bin_t:s0" // files of this host have no labels
	}
	lines := []string{"#!/bin/sh", "set -e", "modprobe overlay"}
	for _, s := range cfg.Shares {
		path, host := words(s.Path), words(s.Host)
		if s.Writable {
			lines = append(lines, "mkdir -p "+path, fmt.Sprintf("mount -t hostfs %s %s -o %s", s.Tag, path, host))
			continue
		}
		lower, upper := "/shares/"+s.Tag, "/memory/"+s.Tag
		lines = append(lines,
			fmt.Sprintf("mkdir -p %s %s %s", lower, upper, path),
			fmt.Sprintf("mount -r -t hostfs %s %s -o %s", s.Tag, lower, host),
			fmt.Sprintf("mount -t tmpfs -o mode=755 tmpfs %s", upper),
			fmt.Sprintf("mkdir %s/files %[1]s/work", upper),
			fmt.Sprintf("mount -t overlay %s %s -o lowerdir=%s,upperdir=%s/files,workdir=%[4]s/work%s", s.Tag, path, lower, upper, options),
		)
	}
	if cfg.Dir != "" {
		lines = append(lines, "cd "+words(cfg.Dir))
	}
	env := append([]string{"env", "-i", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, cfg.Env...)
	lines = append(lines, "exec "+words(append(env, cfg.Command...)...))
	return strings.Join(lines, "\n") + "\n"
}

// words is words of a shell.
func words(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
