// SPDX-License-Identifier: Apache-2.0

// Package vm runs a program in a virtual machine with Debian's own kernel, for what the
// kernel of this host does not have: device mapper, iSCSI, NVMe over TCP, NFS.
//
// The machine has a root on this host that it cannot change, empty disks, no network but its own
// loopback, and no systemd unless that is asked for: one command runs in it, and with that it ends.
// QEMU emulates it (TCG), so that it is some ten times slower than this host.
//
// Like package lab it knows QEMU and the kernel, and must not know Volferry.
package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab/initrd"
	"github.com/volferry/volferry/test/vm/boot"
)

// cacheDir holds the root that install.sh makes, which has the same default.
func cacheDir() string {
	if dir := os.Getenv("VOLFERRY_VM_CACHE"); dir != "" {
		return dir
	}
	return filepath.Join(sourceDir(), "..", "..", ".cache", "vm")
}

// sourceDir is the directory of this package's sources.
func sourceDir() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Dir(here)
}

// Root is the root that install.sh has made. It skips the test, and says why, where there is
// none; with VOLFERRY_LAB=require in the environment, as in CI, it fails instead.
func Root(tb testing.TB) string {
	tb.Helper()
	if _, err := os.Stat(filepath.Join(cacheDir(), "stamp")); err != nil || os.Geteuid() != 0 {
		const msg = "virtual machines need root privileges and the root of the machines; run test/vm/install.sh as root"
		if os.Getenv("VOLFERRY_LAB") == "require" {
			tb.Fatal(msg)
		}
		tb.Skip("SKIPPED: " + msg)
	}
	return filepath.Join(cacheDir(), "root")
}

// ExitError says that the command has ended, and not well.
type ExitError struct{ Status int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// Run boots a machine, and returns when its command has ended: an ExitError if that failed.
// What the command and the kernel print goes to out. Dir is an empty directory, for the
// machine's disks.
func Run(ctx context.Context, dir string, cfg Config, out io.Writer) error {
	kernel, err := kernelOf(cfg.Root)
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	image, err := firstFiles(ctx, cfg, kernel.modules)
	if err != nil {
		return fmt.Errorf("make the machine's first file system: %w", err)
	}
	first, status := filepath.Join(dir, "initrd"), filepath.Join(dir, "exit")
	if err := os.WriteFile(first, image, 0o600); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	args := []string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m", strconv.Itoa(cfg.memoryMiB()),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-nic", "none",
		"-kernel", kernel.image, "-initrd", first, "-append", kernelOptions,
		"-device", "virtio-serial-pci", "-chardev", "file,id=exit,path=" + escape(status),
		"-device", "virtserialport,chardev=exit,name=" + boot.ExitPort,
	}
	args = append(args, share(boot.RootTag, cfg.Root, false)...)
	for _, s := range cfg.Shares {
		args = append(args, share(s.Tag, s.Host, s.Writable)...)
	}
	disks, err := makeDisks(dir, cfg.DiskBytes)
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(args, disks...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the machine: %w", err)
	}
	return exitStatus(status)
}

func (c *Config) memoryMiB() int {
	if c.MemoryMiB == 0 {
		return 3 << 10
	}
	return c.MemoryMiB
}

// exitStatus reads what the machine has said of the end of its command.
func exitStatus(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read how the command ended: %w", err)
	}
	n, err := strconv.Atoi(string(text))
	switch {
	case err != nil:
		return errors.New("the machine has ended without a word on its command")
	case n != 0:
		return &ExitError{n}
	}
	return nil
}

// share is QEMU's arguments for a directory that the machine sees by 9p.
func share(tag, dir string, writable bool) []string {
	fs := "local,id=" + tag + ",path=" + escape(dir) + ",security_model=none,multidevs=remap"
	if !writable {
		fs += ",readonly=on"
	}
	return []string{"-fsdev", fs, "-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag}
}

// makeDisks makes the files of disks, and QEMU's arguments for them.
func makeDisks(dir string, sizes []int64) (args []string, err error) {
	for i, bytes := range sizes {
		path := filepath.Join(dir, "disk"+strconv.Itoa(i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return nil, err
		}
		if err := os.Truncate(path, bytes); err != nil {
			return nil, err
		}
		// The data does not outlive the machine: no flush needs to reach this host's disk.
		args = append(args, "-drive", "if=virtio,format=raw,cache=unsafe,discard=unmap,file="+escape(path))
	}
	return args, nil
}

// escape makes a path a value of one of QEMU's options.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// firstFiles is the first file system: the first program, its plan, and the modules that it
// needs to reach the root.
func firstFiles(ctx context.Context, cfg Config, modules string) ([]byte, error) {
	program, err := initrd.Build(ctx, filepath.Join(sourceDir(), "init"))
	if err != nil {
		return nil, err
	}
	plan := boot.Plan{Command: cfg.Command, Env: cfg.Env, Dir: cfg.Dir, Systemd: cfg.Systemd}
	for _, s := range cfg.Shares {
		plan.Shares = append(plan.Shares, s.Share)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	files, err := initrd.ModuleFiles(modules, bootModules)
	if err != nil {
		return nil, err
	}
	var a initrd.Archive
	a.Dir("dev")
	if err := a.Modules(ctx, boot.ModulesDir, files); err != nil {
		return nil, err
	}
	a.File(strings.TrimPrefix(boot.PlanFile, "/"), 0o644, text)
	a.File("init", 0o755, program)
	return a.Bytes(), nil
}
