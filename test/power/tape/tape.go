// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab"
)

// mkfs are the commands that make the filesystems. A small ext4 would have blocks of 1 KiB, and a
// write of 4 KiB of a guest lie in two blocks of the disk, of which a torn one has one.
var mkfs = map[string][]string{
	"ext4":  {"mkfs.ext4", "-q", "-F", "-b", "4096"},
	"xfs":   {"mkfs.xfs", "-q"},
	"btrfs": {"mkfs.btrfs", "-q"},
}

// Tape is the disks, and what came to them. Its methods may be called from one goroutine at a
// time.
type Tape struct {
	cfg      Config
	cmd      *exec.Cmd
	requests io.WriteCloser
	answers  *json.Decoder
	mounts   []mount
}

// mount is a disk that is mounted.
type mount struct {
	dir  string
	loop *lab.Loop
}

// Start makes the disks with their filesystems. Close must be called.
func Start(ctx context.Context, cfg Config) (*Tape, error) {
	if err := os.MkdirAll(cfg.mountPoint(), 0o755); err != nil {
		return nil, fmt.Errorf("make disks: %w", err)
	}
	for _, d := range cfg.Disks {
		image := cfg.image(d.Name)
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, d.sizeBytes())); err != nil {
			return nil, fmt.Errorf("make disks: %w", err)
		}
		command := mkfs[d.FS]
		if out, err := exec.CommandContext(ctx, command[0], append(command[1:], image)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("make disks: %s: %w\n%s", command[0], err, out)
		}
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("make disks: %w", err)
	}
	t := &Tape{cfg: cfg}
	t.cmd = exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe")
	t.cmd.Env = append(os.Environ(), configVar+"="+string(text))
	t.cmd.Stderr = os.Stderr
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if t.requests, err = t.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("make disks: %w", err)
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make disks: %w", err)
	}
	t.answers = json.NewDecoder(out)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("make disks: %w", err)
	}
	var ready response
	if err := t.answers.Decode(&ready); err != nil {
		return nil, fmt.Errorf("make disks: their process did not begin: %w", errors.Join(err, t.Close()))
	}
	return t, nil
}

func (t *Tape) ask(r request) (response, error) {
	var a response
	if err := json.NewEncoder(t.requests).Encode(r); err != nil {
		return a, fmt.Errorf("%s: %w", r.Do, err)
	}
	if err := t.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("%s: %w", r.Do, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", r.Do, a.Error)
	}
	return a, nil
}

// Record has everything recorded from now on, with what is on the disks so far on stable storage.
func (t *Tape) Record() error {
	for _, m := range t.mounts {
		if err := syncfs(m.dir); err != nil {
			return err
		}
	}
	_, err := t.ask(request{Do: doRecord})
	return err
}

// Stop ends the recording, and returns what came.
func (t *Tape) Stop() ([]Entry, error) {
	a, err := t.ask(request{Do: doStop})
	return a.Entries, err
}

// CutAt makes the disks of a cut. Those of the cut before must not be mounted any more.
func (t *Tape) CutAt(c Cut) error {
	_, err := t.ask(request{Do: doCut, Cut: c})
	return err
}

// Mount mounts a disk that is used and recorded.
func (t *Tape) Mount(name, dir string) error { return t.mount(name, "", dir) }

// MountCut mounts a disk as it was at the last cut.
func (t *Tape) MountCut(name, dir string) error { return t.mount(name, cutExt, dir) }

func (t *Tape) mount(name, ext, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount disk %s: %w", name, err)
	}
	loop, err := lab.LoopDevice(filepath.Join(t.cfg.mountPoint(), name+ext))
	if err != nil {
		return fmt.Errorf("mount disk %s: %w", name, err)
	}
	if err := unix.Mount(loop.Path, dir, t.fsOf(name), 0, ""); err != nil {
		return fmt.Errorf("mount disk %s: %w", name, errors.Join(err, loop.Close()))
	}
	t.mounts = append(t.mounts, mount{dir, loop})
	return goesWithMount(loop.Path)
}

// goesWithMount has the kernel detach a loop device when nothing has it mounted any more, should
// we not live to do so.
func goesWithMount(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return fmt.Errorf("mount disk: %w", err)
	}
	if err := errors.Join(unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0), f.Close()); err != nil {
		return fmt.Errorf("mount disk: %w", err)
	}
	return nil
}

func (t *Tape) fsOf(name string) string {
	for _, d := range t.cfg.Disks {
		if d.Name == name {
			return d.FS
		}
	}
	return ""
}

// Unmount unmounts all disks, which nobody may be using.
func (t *Tape) Unmount() error {
	for len(t.mounts) > 0 {
		m := t.mounts[len(t.mounts)-1]
		if err := unix.Unmount(m.dir, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", m.dir, err)
		}
		if err := m.loop.Close(); err != nil {
			return err
		}
		t.mounts = t.mounts[:len(t.mounts)-1]
	}
	return nil
}

// Close unmounts what is mounted and ends the process of the disks.
func (t *Tape) Close() error {
	err := t.Unmount()
	err = errors.Join(err, t.requests.Close())
	return errors.Join(err, t.cmd.Wait())
}

func syncfs(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
