// SPDX-License-Identifier: Apache-2.0

// Command guest is the only program of the lab's guests: it is started by the
// kernel as /init, loads the virtio drivers, and runs the writers that the host
// asks for over a virtio-serial port. It has no shell, no file system but the
// one in memory, and no network.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab/initrd"
	"github.com/volferry/volferry/test/lab/workload"
)

func main() {
	err := run()
	fmt.Fprintln(os.Stderr, "guest: FATAL:", err)
	// An init that ends makes the kernel panic, and a reboot would only repeat
	// the error.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_HALT)
	select {}
}

// run returns only if the guest cannot do its work.
func run() error {
	if err := mountKernelFilesystems(); err != nil {
		return err
	}
	if err := initrd.LoadModules("/modules"); err != nil {
		return err
	}
	p, err := openPort(workload.Port)
	if err != nil {
		return err
	}
	g := &guest{port: p, boot: rand.Text(), writers: make(map[string]*writer), counters: make(map[string]*counter)}
	disks, err := findDisks()
	if err != nil {
		p.send(workload.Report{Type: workload.ReportFatal, Text: err.Error()})
		return err
	}
	obeyPowerButton(p)
	p.send(workload.Report{Type: workload.ReportHello, Boot: g.boot, Disks: disks, Root: bootedFrom()})
	go watchDisks(p, disks)
	fmt.Fprintln(os.Stderr, "guest: ready")
	for {
		c, err := p.receive()
		if err != nil {
			return err
		}
		if c.Boot != g.boot {
			continue
		}
		if err := g.obey(c); err != nil {
			p.send(workload.Report{Type: workload.ReportFatal, Disk: c.Disk, Text: err.Error()})
			return err
		}
	}
}

// guest is the state of the main goroutine.
type guest struct {
	port    *port
	boot    string
	writers map[string]*writer // by disk; a stopped one stays until the next start
	// counters are those that run, by disk.
	counters map[string]*counter
}

func (g *guest) obey(c workload.Command) error {
	switch c.Type {
	case workload.CommandStart:
		if w := g.writers[c.Disk]; w != nil {
			w.stop()
		}
		w, err := newWriter(g.port, c)
		if err != nil {
			return fmt.Errorf("start writer: %w", err)
		}
		g.writers[c.Disk] = w
		go w.run()
	case workload.CommandPace, workload.CommandConfirm, workload.CommandStop:
		if w := g.writers[c.Disk]; w != nil {
			w.tell(c)
		}
	case workload.CommandCount:
		n, err := newCounter(g.port, c)
		if err != nil {
			return fmt.Errorf("start counter: %w", err)
		}
		g.counters[c.Disk] = n
		go n.run()
	case workload.CommandUncount:
		if n := g.counters[c.Disk]; n != nil {
			delete(g.counters, c.Disk)
			n.stop()
		}
	case workload.CommandPowerOff:
		g.port.silence()
		return fmt.Errorf("power off: %w", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	case workload.CommandSleep:
		go suspend(g.port) // the write returns when somebody has woken the machine
	case workload.CommandCrash:
		g.port.silence()
		return os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
	case workload.CommandReboot:
		g.port.silence()
		return fmt.Errorf("reboot: %w", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
	}
	return nil
}

// suspend puts the machine to sleep (S3).
func suspend(p *port) {
	if err := os.WriteFile("/sys/power/state", []byte("mem"), 0); err != nil {
		p.send(workload.Report{Type: workload.ReportFatal, Text: err.Error()})
	}
}

// bootedFrom is the name of the volume that the kernel comes from, empty if the host
// gave it to QEMU.
func bootedFrom() string {
	line, _ := os.ReadFile("/proc/cmdline") // it is there in every kernel
	for _, word := range strings.Fields(string(line)) {
		if root, found := strings.CutPrefix(word, workload.RootOption); found {
			return root
		}
	}
	return ""
}

func mountKernelFilesystems() error {
	var errs []error
	for point, fstype := range map[string]string{"/dev": "devtmpfs", "/sys": "sysfs", "/proc": "proc"} {
		if err := os.MkdirAll(point, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		// The kernel may have mounted /dev itself.
		if err := unix.Mount(fstype, point, fstype, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("mount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}
