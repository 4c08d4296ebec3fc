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
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
	"github.com/volferry/volferry/test/site"
)

// contender is a way to move a volume from pool src to pool dst.
type contender struct {
	name string
	// program is what has to be installed for it, "" if it is always there.
	program string
	// running: it moves the volume of a running guest; otherwise one that no guest has.
	running bool
	// managed: the volume has to be one of Volferry's.
	managed bool
	// moves returns when dst is the volume and is durable.
	moves func(ctx context.Context, s *stage, v *volume) error
}

const dd = "dd if=SRC of=DST bs=1M iflag=direct oflag=direct conv=fsync,notrunc status=none"

// contenders are all of them.
var contenders = []contender{
	{name: "volferry", running: true, managed: true, moves: migrate()},
	{name: "volferry-noverify", running: true, managed: true, moves: migrate("--verify", "none")},
	{name: "volferry-pace-off", running: true, managed: true, moves: migrate("--pace", "off")},
	{name: "volferry-pace-full", running: true, managed: true, moves: migrate("--pace", "full")},
	{name: "volferry-mirror", running: true, managed: true, moves: migrate("--method", "mirror")},
	{name: "volferry-external", running: true, managed: true, moves: external(dd)},
	{name: "blockcopy", running: true, moves: blockcopy()},
	{name: "blockcopy-sync", running: true, moves: blockcopy("--synchronous-writes")},

	{name: "volferry-stopped", managed: true, moves: migrate()},
	{name: "volferry-stopped-noverify", managed: true, moves: migrate("--verify", "none")},
	// With these caches qemu-img flushes when it closes the destination.
	{name: "qemu-img", program: "qemu-img", moves: tool("qemu-img convert -n -W -m 16 -t none -T none -f raw -O raw SRC DST")},
	{name: "nbdcopy", program: "nbdcopy", moves: tool("nbdcopy --flush SRC DST")},
	{name: "dd", program: "dd", moves: tool(dd)},
}

func contenderNames() (names []string) {
	for _, c := range contenders {
		names = append(names, c.name)
	}
	return names
}

// missing says why the contender cannot run on this machine, "" if it can.
func (c contender) missing() string {
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
		_, err := s.site.Ctl(ctx, append([]string{"volume", "migrate", v.managed, "--to-pool", dstPool}, flags...)...)
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
		m, err := site.Get[api.Migration](ctx, s.site.Caller, "migration", "migration", "start", attachments[0].ID, "--to-pool", dstPool, "--external-copy")
		if err != nil {
			return err
		}
		v.overlay.from = time.Now()
		if err := s.watchGuest(ctx); err != nil {
			return err
		}
		v.overlay.to = time.Now()
		if err := runTool(ctx, command, v.src, m.Dst.Path); err != nil {
			return err
		}
		_, err = s.site.Ctl(ctx, "migration", "complete", m.SrcAttachmentID, m.DstAttachmentID)
		return err
	}
}

// tool is a command with SRC and DST in the places of the images. The destination is there, of
// its size and without data.
func tool(command string) func(context.Context, *stage, *volume) error {
	return func(ctx context.Context, _ *stage, v *volume) error {
		if err := makeSparse(v.dst, v.bytes); err != nil {
			return err
		}
		return runTool(ctx, command, v.src, v.dst)
	}
}

func runTool(ctx context.Context, command, src, dst string) error {
	args := strings.Fields(command)
	for i := range args {
		args[i] = strings.NewReplacer("SRC", src, "DST", dst).Replace(args[i])
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// writer is what a running guest does.
type writer struct {
	name string
	load *lab.Load // nil: nothing
	mix  workload.Mix
}

var writers = []writer{
	{name: "none"},
	// Every write is durable before the next one, as in the log of a database.
	{name: "depth1", load: &lab.Load{Depth: 1}, mix: workload.Mix{Flush: 100}},
	{name: "depth32", load: &lab.Load{Depth: 32}, mix: workload.Mix{Flush: 2}},
	{name: "sequential", load: &lab.Load{Depth: 1}, mix: workload.Mix{Sequential: 1 << 20 / workload.BlockSize}},
}

func writerNames() (names []string) {
	for _, w := range writers {
		names = append(names, w.name)
	}
	return names
}
