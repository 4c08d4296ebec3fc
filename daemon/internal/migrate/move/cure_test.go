// SPDX-License-Identifier: Apache-2.0

package move_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// types runs a command in a real shell, like a person who has copied it.
func types(t *testing.T, command string) error {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput() //nolint:gosec // the command under test
	t.Logf("%s: %v %s", command, err, out)
	return err
}

// processOf starts a process with the arguments of a domain's QEMU that ends with its input.
func processOf(t *testing.T, id string) (p *exec.Cmd, input io.Closer) {
	t.Helper()
	p = exec.CommandContext(t.Context(), "sh", "-c", "echo; read -r line", "qemu", "-name", "guest="+id, "-uuid", id, "-S")
	input, err := p.StdinPipe()
	expect.OK(t, err)
	output, err := p.StdoutPipe()
	expect.OK(t, err)
	expect.OK(t, p.Start())
	_, err = output.Read(make([]byte, 1)) // it has its arguments now
	expect.OK(t, err)
	return p, input
}

func TestTheCommandThatEndsTheProcessOfAnInstanceEndsNoOtherOfItsNumber(t *testing.T) {
	mine, other := uuid.NewString(), uuid.NewString()
	p, _ := processOf(t, mine)
	expect.OK(t, types(t, move.KillCommand(&move.Spec{InstanceID: mine}, p.Process.Pid)))
	var ended *exec.ExitError
	if err := p.Wait(); !errors.As(err, &ended) || ended.String() != "signal: "+syscall.SIGTERM.String() {
		t.Errorf("the process of the instance has ended with %v", err)
	}
	if err := types(t, move.KillCommand(&move.Spec{InstanceID: mine}, p.Process.Pid)); err == nil {
		t.Error("a process that is gone was ended")
	}
	// Another instance's process, one with the same id in a longer word, and one without an id.
	for _, args := range []string{other, other + " -uuid " + mine, ""} {
		p, input := processOf(t, args)
		if err := types(t, move.KillCommand(&move.Spec{InstanceID: mine}, p.Process.Pid)); err == nil {
			t.Errorf("a process with the arguments %q was ended", args)
		}
		expect.OK(t, input.Close())
		if err := p.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 1 { // read has reached the end
			t.Errorf("a process with the arguments %q has ended with %v", args, err)
		}
	}
}

// With a lock manager, libvirt refuses virsh resume after a pivot of a suspended guest.
func TestAMergeUnderASuspendedGuestIsFollowedByTheUnpauseThatDropsItsLease(t *testing.T) {
	s := &move.Spec{InstanceName: "web", Target: "vda"}
	got := move.CommitCommands(s, "/o.qcow2", true)
	if len(got) != 3 || got[0] != "virsh suspend web" || got[2] != "volferryctl instance unpause web" {
		t.Errorf("running: %q", got)
	}
	if got := move.CommitCommands(s, "/o.qcow2", false); len(got) != 1 { // its owner has suspended it
		t.Errorf("suspended: %q", got)
	}
}

func TestTheCommandThatWritesADestinationBackMakesTheOtherImageEqualToIt(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("SKIPPED: there is no qemu-img on this machine")
	}
	const size = 8 << 20
	content := func(seed byte) []byte { return append(bytes.Repeat([]byte{seed}, size/2), make([]byte, size/2)...) }
	qemuImg := func(t *testing.T, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %v: %v: %s", args, err, out)
		}
	}
	for _, from := range []api.Format{api.FormatRaw, api.FormatQcow2} {
		for _, to := range []string{"raw", "qcow2", "overlay"} {
			t.Run(fmt.Sprintf("from %s to %s", from, to), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "it's a pool")
				expect.OK(t, os.Mkdir(dir, 0o700))
				newer, old, dst, top := filepath.Join(dir, "newer"), filepath.Join(dir, "old"), filepath.Join(dir, "dst"), filepath.Join(dir, "top")
				expect.OK(t, os.WriteFile(newer, content(1), 0o600))
				expect.OK(t, os.WriteFile(old, bytes.Repeat([]byte{2}, size), 0o600))
				qemuImg(t, "convert", "-f", "raw", "-O", string(from), newer, dst)
				toFormat := "qcow2"
				if to == "overlay" {
					expect.OK(t, image.Storage{}.CreateOverlay(t.Context(), top, hv.Image{Path: old, Format: "raw"}, size, nil))
				} else {
					toFormat = to
					qemuImg(t, "convert", "-f", "raw", "-O", to, old, top)
				}
				expect.OK(t, types(t, move.ConvertCommand(string(from), toFormat, dst, top)))
				qemuImg(t, "compare", "-f", "raw", "-F", toFormat, newer, top)
				if was, err := os.ReadFile(old); err != nil || !bytes.Equal(was, bytes.Repeat([]byte{2}, size)) {
					t.Errorf("the image below was written (%v)", err)
				}
			})
		}
	}
}
