// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
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
	"github.com/volferry/volferry/test/lab/initrd"
	"github.com/volferry/volferry/test/vm/boot"
)

// Emulated is a machine that QEMU emulates (TCG), with the kernel of Debian 12. It is some ten
// times slower than this host. Its root is on this host, and the machine's memory has what it
// writes there. It has no systemd unless that is asked for.
type Emulated struct{ root string }

// NewEmulated returns the machine with the root that install.sh has made. It skips the test, and
// prints why, where there is none; with VOLFERRY_LAB=require in the environment, as in CI, it
// fails instead.
func NewEmulated(tb testing.TB) *Emulated {
	tb.Helper()
	dir, err := findCache("VOLFERRY_VM_CACHE", "vm", "test/vm/install.sh")
	if err != nil {
		lab.SkipOrFail(tb, err.Error())
	}
	return &Emulated{root: filepath.Join(dir, "root")}
}

// Disk implements Machine.
func (m *Emulated) Disk(n int) string { return "/dev/vd" + string(rune('a'+n)) }

// Run implements Machine.
func (m *Emulated) Run(ctx context.Context, dir string, cfg Config, out io.Writer) error {
	kernel, err := kernelOf(m.root)
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
	args = append(args, share(boot.RootTag, m.root, false)...)
	for _, s := range cfg.Shares {
		args = append(args, share(s.Tag, s.Host, s.Writable)...)
	}
	disks, err := makeDisks(dir, cfg.DiskBytes)
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(args, drives(disks)...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the machine: %w", err)
	}
	return exitStatus(status)
}

// share is QEMU's arguments for a directory that the machine sees by 9p.
func share(tag, dir string, writable bool) []string {
	fs := "local,id=" + tag + ",path=" + escape(dir) + ",security_model=none,multidevs=remap"
	if !writable {
		fs += ",readonly=on"
	}
	return []string{"-fsdev", fs, "-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag}
}

// drives is QEMU's arguments for disks. The data does not outlive the machine: no flush needs to
// reach this host's disk.
func drives(paths []string) (args []string) {
	for _, path := range paths {
		args = append(args, "-drive", "if=virtio,format=raw,cache=unsafe,discard=unmap,file="+escape(path))
	}
	return args
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
