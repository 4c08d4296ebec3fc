// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/bench/meter"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// contender is a way to move a volume from pool src to another pool.
type contender struct {
	name string
	// program is what has to be installed for it, "" if it is always there.
	program string
	// running: it moves the volume of a running guest; otherwise one that no guest has.
	running bool
	// managed: the volume has to be one of Volferry's.
	managed bool
	// reflink: the other pool is in the file system of the first, and the move shares its extents.
	reflink bool
	// unconfined: its guest has no profile of AppArmor, where the other guests have one.
	unconfined bool
	// full: it runs with --full, or where it is asked for by its name.
	full bool
	// moves returns when dst is the volume and is durable.
	moves func(ctx context.Context, s *stage, v *volume) error
}

const dd = "dd if=SRC of=DST bs=1M iflag=direct oflag=direct conv=fsync,notrunc status=none"

// contenders are all of them.
var contenders = []contender{
	{name: "volferry", running: true, managed: true, moves: migrate()},
	{name: "volferry-unconfined", running: true, managed: true, unconfined: true, moves: migrate()},
	{name: "volferry-noverify", running: true, managed: true, moves: migrate("--verify", "none")},
	{name: "volferry-pace-off", running: true, managed: true, moves: migrate("--pace", "off")},
	{name: "volferry-pace-full", running: true, managed: true, full: true, moves: migrate("--pace", "full")},
	{name: "volferry-mirror", running: true, managed: true, moves: migrate("--method", "mirror")},
	{name: "volferry-reflink", running: true, managed: true, reflink: true, moves: migrate()},
	{name: "volferry-external", running: true, managed: true, full: true, moves: external(dd)},
	{name: "blockcopy", running: true, moves: blockcopy()},
	{name: "blockcopy-sync", running: true, moves: blockcopy("--synchronous-writes")},

	{name: "volferry-stopped", managed: true, moves: migrate()},
	{name: "volferry-stopped-noverify", managed: true, moves: migrate("--verify", "none")},
	{name: "volferry-stopped-reflink", managed: true, reflink: true, moves: migrate()},
	{name: "volferry-stopped-reflink-noverify", managed: true, reflink: true, moves: migrate("--verify", "none")},
	// With these caches qemu-img flushes when it closes the destination.
	{name: "qemu-img", program: "qemu-img", moves: tool("qemu-img convert -n -W -m 16 -t none -T none -f raw -O raw SRC DST")},
	{name: "nbdcopy", program: "nbdcopy", moves: tool("nbdcopy --flush SRC DST")},
	{name: "dd", program: "dd", moves: tool(dd)},
	{name: "cp-reflink", program: "cp", reflink: true, moves: tool("cp --reflink=always SRC DST", "sync DST")},
}

func contenderNames() (names []string) {
	for _, c := range contenders {
		names = append(names, c.name)
	}
	return names
}

// fullNames are those of the contenders that a small run leaves out.
func fullNames() (names []string) {
	for _, c := range contenders {
		if c.full {
			names = append(names, c.name)
		}
	}
	return names
}

// missing says why the contender cannot run on this machine with file systems of that type, "" if
// it can.
func (c contender) missing(fs string) string {
	if c.reflink && fs == "ext4" {
		return "files of ext4 share no extents"
	}
	if c.unconfined && !lab.Confined() {
		return "no guest of this machine is confined; see --confined"
	}
	if c.program == "" {
		return ""
	}
	if _, err := exec.LookPath(c.program); err != nil {
		return c.program + " is not installed"
	}
	return ""
}

func migrate(flags ...string) func(context.Context, *stage, *volume) error {
	return func(ctx context.Context, s *stage, v *volume) error {
		_, err := s.site.Ctl(ctx, append([]string{"volume", "migrate", v.managed, "--to-pool", v.to.name}, flags...)...)
		return err
	}
}

func blockcopy(flags ...string) func(context.Context, *stage, *volume) error {
	return func(ctx context.Context, s *stage, v *volume) error {
		args := []string{"blockcopy", v.name, disk, "--dest", v.dst, "--format", "raw", "--transient-job", "--wait", "--pivot"}
		_, err := s.site.Libvirtd.Virsh(ctx, append(args, flags...)...)
		return err
	}
}

// external has the guest write to its overlay, while nothing is copied, for as long as it is
// watched before the move: what it loses then is the price of the overlay. Then a command copies.
func external(command string) func(context.Context, *stage, *volume) error {
	return func(ctx context.Context, s *stage, v *volume) error {
		attachments, err := site.Get[[]api.Attachment](ctx, s.site.Caller, "attachments", "attachment", "list", "--volume", v.managed)
		if err != nil {
			return err
		}
		if len(attachments) != 1 {
			return fmt.Errorf("volume %s has %d attachments, want one", v.managed, len(attachments))
		}
		m, err := site.Get[api.Migration](ctx, s.site.Caller, "migration", "migration", "start", attachments[0].ID, "--to-pool", v.to.name, "--external-copy")
		if err != nil {
			return err
		}
		v.overlay.from = time.Now()
		if err := s.watchGuest(ctx); err != nil {
			return err
		}
		v.overlay.to = time.Now()
		if err := v.runTool(ctx, command, m.Dst.Path); err != nil {
			return err
		}
		_, err = s.site.Ctl(ctx, "migration", "complete", m.SrcAttachmentID, m.DstAttachmentID)
		return err
	}
}

// tool is commands with SRC and DST in the places of the images. The destination is there, of
// its size and without data.
func tool(commands ...string) func(context.Context, *stage, *volume) error {
	return func(ctx context.Context, _ *stage, v *volume) error {
		if err := makeSparse(v.dst, v.bytes); err != nil {
			return err
		}
		for _, command := range commands {
			if err := v.runTool(ctx, command, v.dst); err != nil {
				return err
			}
		}
		return nil
	}
}

func (v *volume) runTool(ctx context.Context, command, dst string) error {
	args := strings.Fields(command)
	for i := range args {
		args[i] = strings.NewReplacer("SRC", v.src, "DST", dst).Replace(args[i])
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	v.commandPeak = max(v.commandPeak, meter.ChildPeak(cmd.ProcessState))
	return nil
}
