// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/test/lab/workload"
)

// Guest is a domain whose program writes to its disks as it is told. Its
// methods may be called from any goroutine. Writers go on by themselves after a
// reboot, a reset, or a stop and start by whomever.
type Guest struct {
	Name string
	UUID string

	at   *Connection
	link *link
}

// DefineGuest defines a guest, persistent and stopped. Close removes it.
func (c *Connection) DefineGuest(ctx context.Context, cfg GuestConfig) (*Guest, error) {
	boot, err := Kernel(ctx)
	if err != nil {
		return nil, fmt.Errorf("define guest %s: %w", cfg.Name, err)
	}
	base := filepath.Join(c.Dir, "guest", cfg.Name)
	if err := os.MkdirAll(filepath.Dir(c.here(base)), 0o711); err != nil {
		return nil, fmt.Errorf("define guest %s: %w", cfg.Name, err)
	}
	sockets := []string{c.here(base) + ".sock"}
	if cfg.UEFI {
		sockets = c.sockets(cfg.Name)
	}
	for _, socket := range sockets {
		if len(socket) >= maxSocketPath {
			return nil, fmt.Errorf("define guest %s: %s is too long for a unix socket", cfg.Name, socket)
		}
	}
	xml, err := c.domainXML(cfg, boot, base)
	if err != nil {
		return nil, fmt.Errorf("define guest %s: %w", cfg.Name, err)
	}
	if err := os.WriteFile(c.here(base)+".xml", xml, 0o600); err != nil {
		return nil, fmt.Errorf("define guest %s: %w", cfg.Name, err)
	}
	if _, err := c.Virsh(ctx, "define", base+".xml"); err != nil {
		return nil, err
	}
	g := &Guest{Name: cfg.Name, at: c}
	out, err := c.Virsh(ctx, "domuuid", cfg.Name)
	if err != nil {
		return nil, errors.Join(err, g.undefine())
	}
	g.UUID = strings.TrimSpace(out)
	if g.link, err = openLink(ctx, c.disksHere(cfg.Disks), sockets, c.here(base)+".log"); err != nil {
		return nil, fmt.Errorf("define guest %s: %w", cfg.Name, errors.Join(err, g.undefine()))
	}
	return g, nil
}

// sockets are patterns of where libvirt puts the socket of a guest's port, with the
// number of the domain in it.
func (c *Connection) sockets(name string) []string {
	var patterns []string
	for _, before := range c.channels {
		patterns = append(patterns, filepath.Join(before+name, workload.Port))
	}
	return patterns
}

// disksHere are disks with the paths by which the test sees them.
func (c *Connection) disksHere(disks []Disk) []Disk {
	here := slices.Clone(disks)
	for i := range here {
		here[i].Path = c.here(here[i].Path)
	}
	return here
}

// At is the guest, one with UEFI, at another libvirtd, to which its domain has come.
// All that is known of it stays known. It is g that is to be closed, and the other
// libvirtd's end that ends the domain.
func (g *Guest) At(c *Connection) *Guest {
	g.link.update(func() { g.link.sockets = c.sockets(g.Name) })
	return &Guest{Name: g.Name, UUID: g.UUID, at: c, link: g.link}
}

// Close destroys the guest if it runs, and undefines it.
func (g *Guest) Close() error {
	return errors.Join(g.undefine(), g.link.close())
}

func (g *Guest) undefine() error {
	// It ends what a test began, and so must work after the test's context.
	ctx, cancel := context.WithTimeout(context.Background(), Limit(daemonTimeout))
	defer cancel()
	if _, err := g.virsh(ctx, "destroy"); err != nil {
		switch text := err.Error(); {
		case strings.Contains(text, "failed to get domain"):
			return nil // a test took it off this host
		case !strings.Contains(text, "not running"):
			return err
		}
	}
	_, err := g.virsh(ctx, "undefine", "--managed-save", "--nvram")
	return err
}

func (g *Guest) virsh(ctx context.Context, command string, flags ...string) (string, error) {
	return g.at.Virsh(ctx, append([]string{command, g.Name}, flags...)...)
}

// Start starts the domain. It does not wait for the guest.
func (g *Guest) Start(ctx context.Context) error {
	_, err := g.virsh(ctx, "start")
	return err
}

// Destroy ends the domain at once, as pulling the plug would, but lets QEMU
// close its images.
func (g *Guest) Destroy(ctx context.Context) error {
	_, err := g.virsh(ctx, "destroy")
	return err
}

// Reset resets the machine. QEMU lives on, the guest boots again.
func (g *Guest) Reset(ctx context.Context) error {
	return g.link.ending(func() error {
		_, err := g.virsh(ctx, "reset")
		return err
	})
}

// Pause stops the machine where it is.
func (g *Guest) Pause(ctx context.Context) error {
	_, err := g.virsh(ctx, "suspend")
	return err
}

// Resume lets a paused machine go on.
func (g *Guest) Resume(ctx context.Context) error {
	_, err := g.virsh(ctx, "resume")
	return err
}

// PowerOff has the guest's kernel turn the machine off, with operations still
// in flight unless the writers were stopped before, and waits until the domain
// is off.
func (g *Guest) PowerOff(ctx context.Context) error {
	if err := g.link.command(ctx, workload.Command{Type: workload.CommandPowerOff}); err != nil {
		return fmt.Errorf("power off guest %s: %w", g.Name, err)
	}
	return g.WaitState(ctx, "shut off")
}

// Reboot has the guest's kernel restart the machine, with operations still in
// flight unless the writers were stopped before. It does not wait.
func (g *Guest) Reboot(ctx context.Context) error {
	if err := g.link.ending(func() error {
		return g.link.command(ctx, workload.Command{Type: workload.CommandReboot})
	}); err != nil {
		return fmt.Errorf("reboot guest %s: %w", g.Name, err)
	}
	return nil
}

// Sleep has the guest's kernel suspend the machine to memory (S3), and waits until it sleeps. The
// guest has to be one that CanSleep.
func (g *Guest) Sleep(ctx context.Context) error {
	if err := g.link.command(ctx, workload.Command{Type: workload.CommandSleep}); err != nil {
		return fmt.Errorf("put guest %s to sleep: %w", g.Name, err)
	}
	return g.WaitState(ctx, "pmsuspended")
}

// Crash has the guest's kernel panic, and waits until libvirt says so. The guest has to be one that
// is KeptInCrash.
func (g *Guest) Crash(ctx context.Context) error {
	if err := g.link.ending(func() error {
		return g.link.command(ctx, workload.Command{Type: workload.CommandCrash})
	}); err != nil {
		return fmt.Errorf("crash guest %s: %w", g.Name, err)
	}
	return g.WaitState(ctx, "crashed")
}

// Wake wakes a guest that sleeps.
func (g *Guest) Wake(ctx context.Context) error {
	_, err := g.virsh(ctx, "dompmwakeup")
	return err
}

// State is the state of the domain in virsh's words.
func (g *Guest) State(ctx context.Context) (string, error) {
	out, err := g.virsh(ctx, "domstate")
	return strings.TrimSpace(out), err
}

// WaitState waits until the domain is in this state.
func (g *Guest) WaitState(ctx context.Context, want string) error {
	var got string
	var err error
	if !pollEvery(startsPrograms, Limit(guestTimeout), func() bool {
		got, err = g.State(ctx)
		return err != nil || got == want
	}) {
		return fmt.Errorf("guest %s is %s, still not %s", g.Name, got, want)
	}
	return err
}

// Write has a writer run on the disk (vda, vdb and so on) from now on, in every
// boot of the guest, or changes the pace of the one that runs. It does not wait
// for the guest.
func (g *Guest) Write(disk string, load Load) error { return g.link.write(disk, load) }

// Quiesce stops the writer on the disk and waits until it has nothing in
// flight: all that it wrote is acknowledged. It needs a running guest.
func (g *Guest) Quiesce(ctx context.Context, disk string) error {
	if err := g.link.quiesce(ctx, disk); err != nil {
		return fmt.Errorf("quiesce %s of guest %s: %w%s", disk, g.Name, err, g.consoleTail())
	}
	return nil
}

// WaitWriting waits for n more acknowledgements from the disk than there are
// now, which a guest that boots or writes will send.
func (g *Guest) WaitWriting(ctx context.Context, disk string, n int) error {
	if err := g.link.waitAcks(ctx, disk, n); err != nil {
		return fmt.Errorf("wait for guest %s to write to %s: %w%s", g.Name, disk, err, g.consoleTail())
	}
	return nil
}

// Disks waits until the guest has booted and returns the disks as it sees them.
func (g *Guest) Disks(ctx context.Context) ([]workload.GuestDisk, error) {
	disks, err := g.link.disks(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for guest %s: %w%s", g.Name, err, g.consoleTail())
	}
	return disks, nil
}

// Root waits until the guest has booted and returns the name of the volume that it
// booted from, see MakeBootVolume.
func (g *Guest) Root(ctx context.Context) (string, error) {
	if _, err := g.Disks(ctx); err != nil {
		return "", err
	}
	g.link.mu.Lock()
	defer g.link.mu.Unlock()
	return g.link.root, nil
}

// AddDisk makes a disk that was not there when the guest was defined one that can
// be written to, and begins its history, in place of what was known of that name
// before. name is the guest's own name of it, as WaitDisk returns it.
func (g *Guest) AddDisk(ctx context.Context, name string, d Disk) error {
	if err := g.link.add(ctx, name, g.at.disksHere([]Disk{d})[0]); err != nil {
		return fmt.Errorf("add disk %s to guest %s: %w", name, g.Name, err)
	}
	return nil
}

// WaitDisk waits until the guest has booted and has a disk with this serial, of
// which a guest sees the first 20 characters.
func (g *Guest) WaitDisk(ctx context.Context, serial string) (workload.GuestDisk, error) {
	d, err := g.link.waitDisk(ctx, serial, true)
	if err != nil {
		err = fmt.Errorf("wait for disk %s to come to guest %s: %w%s", serial, g.Name, err, g.consoleTail())
	}
	return d, err
}

// WaitNoDisk waits until the guest has booted and has no disk with this serial.
func (g *Guest) WaitNoDisk(ctx context.Context, serial string) error {
	if _, err := g.link.waitDisk(ctx, serial, false); err != nil {
		return fmt.Errorf("wait for disk %s to leave guest %s: %w%s", serial, g.Name, err, g.consoleTail())
	}
	return nil
}

// WaitHeard waits until QEMU, which is ending, has closed its end of the guest's line and all that
// the guest said is in its histories, with times before the return.
func (g *Guest) WaitHeard(ctx context.Context) error {
	if err := g.link.waitClosed(ctx); err != nil {
		return fmt.Errorf("guest %s: %w", g.Name, err)
	}
	return nil
}

// History is what is known up to now of the operations on a disk. It belongs to
// the volume that was there when the guest was defined, wherever its bytes are
// now.
func (g *Guest) History(disk string) *History { return g.link.history(disk) }

// consoleTail returns the end of the guest's console for an error message.
func (g *Guest) consoleTail() string {
	data, _ := os.ReadFile(g.at.here(filepath.Join(g.at.Dir, "guest", g.Name+".console")))
	const most = 1000
	return "; console ends: " + strings.TrimSpace(string(data[max(0, len(data)-most):]))
}
