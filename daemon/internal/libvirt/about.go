// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/libvirt/qemuconf"
)

func (h *host) About(ctx context.Context) (about hv.About, err error) {
	if err := h.readAbout(ctx, &about); err != nil {
		return about, fmt.Errorf("ask libvirt about itself: %w", err)
	}
	return about, nil
}

func (h *host) readAbout(ctx context.Context, about *hv.About) error {
	s, err := h.connection.reads()
	if err != nil {
		return err
	}
	if about.Libvirt, err = h.connection.libraryVersion(ctx); err != nil {
		return err
	}
	qemu, err := call(ctx, s, func(lv *golibvirt.Libvirt) (uint64, error) { return lv.ConnectGetVersion() })
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return err
	case err == nil: // libvirt returns an error if it finds no emulator
		about.QEMU = hv.VersionOf(qemu)
	}
	caps, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) { return lv.ConnectGetCapabilities() })
	if err != nil {
		return err
	}
	if about.SecurityModels, err = modelsInCapabilities(caps); err != nil {
		return err
	}
	conf := qemuconf.Path(h.library.definitions)
	if about.GivesImages, err = qemuconf.GivesImages(conf); err != nil {
		return err
	}
	if about.RemembersOwners, err = qemuconf.RemembersOwners(conf); err != nil {
		return err
	}
	about.Process = h.daemonProcess(ctx)
	return nil
}

// Answers implements hv.Host.
func (c *connection) Answers(ctx context.Context) error {
	_, err := c.libraryVersion(ctx)
	return err
}

// libraryVersion returns the version of the libvirt that answers.
func (c *connection) libraryVersion(ctx context.Context) (hv.Version, error) {
	s, err := c.reads()
	if err != nil {
		return hv.Version{}, err
	}
	version, err := call(ctx, s, func(lv *golibvirt.Libvirt) (uint64, error) { return lv.ConnectGetLibVersion() })
	return hv.VersionOf(version), err
}

func modelsInCapabilities(caps string) ([]string, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(caps); err != nil {
		return nil, fmt.Errorf("parse capabilities: %w", err)
	}
	var models []string
	for _, model := range doc.FindElements("/capabilities/host/secmodel") {
		if name := domainxml.TextIn(model, "model"); name != "none" {
			models = append(models, name)
		}
	}
	return models, nil
}

var daemonNames = []string{"libvirtd", "virtqemud"}

// daemonProcess returns the process that serves the socket, nil if unknown. With socket activation
// the kernel reports systemd, so it also reads libvirt's PID files.
func (h *host) daemonProcess(ctx context.Context) *hv.DaemonProcess {
	pids := []int{}
	for _, path := range h.connection.sockets {
		if pid := listener(ctx, path); pid != 0 {
			pids = append(pids, pid)
		}
	}
	for _, name := range daemonNames {
		text, err := os.ReadFile("/run/" + name + ".pid")
		if err != nil {
			continue
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		if p := h.readDaemon(ctx, pid); p != nil {
			return p
		}
	}
	return nil
}

func (h *host) readDaemon(ctx context.Context, pid int) *hv.DaemonProcess {
	p, err := h.processes.about(ctx, pid)
	if err != nil || !slices.Contains(daemonNames, p.Name) {
		return nil
	}
	ticks, err := strconv.ParseInt(p.Ticks, 10, 64)
	if err != nil {
		return nil
	}
	id, err := identity(pid, p)
	if err != nil {
		return nil
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return nil
	}
	age := time.Duration(boot.Nano()) - time.Duration(ticks)*(time.Second/ticksPerSecond)
	return &hv.DaemonProcess{PID: pid, ID: id, Name: p.Name, Since: time.Now().Add(-age)}
}

// ticksPerSecond is the kernel's USER_HZ, the unit of times in /proc.
const ticksPerSecond = 100

// listener returns the process that started to listen at a socket, 0 if unknown.
func listener(ctx context.Context, path string) int {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}

// TrialName is the name of HookRefuses' trial domain.
const TrialName = "volferry-doctor-trial"

// trialXML describes a domain without disks and with a nonexistent kernel: if no hook refuses its
// start, libvirt or QEMU does.
const trialXML = `<domain type='qemu'>
  <name>` + TrialName + `</name>
  <uuid>%s</uuid>
  <memory unit='MiB'>16</memory>
  <vcpu>1</vcpu>
  <os><type>hvm</type><kernel>/nonexistent/volferry-doctor</kernel></os>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
</domain>
`

// HookRefuses implements hv.Hypervisor. libvirt calls the hook before it creates anything else of a
// domain.
func (h *host) HookRefuses(ctx context.Context, id string) (bool, error) {
	err := h.connection.byItself(ctx, func(ctx context.Context, s *session) error {
		dom, err := call(ctx, s, func(lv *golibvirt.Libvirt) (golibvirt.Domain, error) {
			return lv.DomainCreateXML(fmt.Sprintf(trialXML, id), golibvirt.DomainStartPaused|golibvirt.DomainStartAutodestroy)
		})
		if err != nil {
			return err
		}
		_, err = call(ctx, s, func(lv *golibvirt.Libvirt) (none, error) { return none{}, lv.DomainDestroy(dom) })
		return errors.Join(errors.New("a domain without a kernel was started"), err)
	})
	switch {
	case errors.Is(err, hv.ErrGuarded):
		return true, nil
	case errors.Is(err, hv.ErrUnavailable):
		return false, fmt.Errorf("try whether the hook is asked: %w", err)
	}
	return false, nil //nolint:nilerr // the start failed after the hook, as intended
}
