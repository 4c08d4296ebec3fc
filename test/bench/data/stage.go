// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/test/bench/meter"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// options are what can be asked for.
type options struct {
	sizeMiB int64
	fills   numbers // percent of the volume's blocks
	disks   numbers // 1: source and destination are on one; 2: each is on its own
	rounds  int
	seconds time.Duration
	writers string
	only    string // names of contenders; "" for all, or without full for those that are not for full
	full    bool
	// confined: it runs on a machine of user-mode Linux that confines guests.
	confined bool
	fs       string
	seed     uint64
	out      string
	bin      string
}

func (o options) bytes() int64 { return o.sizeMiB << 20 }

// disk is the guest's name of its disk.
const disk = "vda"

// pool is one that volumes are moved from or to.
type pool struct {
	name string
	dir  string // of its images
}

// volume is one that is to be moved.
type volume struct {
	name     string // of its guest, too
	managed  string // its name in Volferry, "" if that does not have it
	src, dst string // paths
	to       pool
	bytes    int64
	// overlay is when the guest wrote to its overlay while nothing was copied, zero if it never
	// did.
	overlay span
	// commandPeak is the most memory that a command had which has copied it.
	commandPeak int64
}

// stage is the host on which everything runs.
type stage struct {
	options

	dir         string
	site        *site.Site
	daemon      *client.Client
	fileSystems []*lab.FS
	src         pool
	near        pool // in the file system of src
	dst         pool // in another one, on the same disk
	second      pool // on another disk; only where that is asked for
	volumes     int  // made so far
}

// setUp makes the stage. It is to be closed even where there is an error.
func setUp(ctx context.Context, o options) (*stage, error) {
	s := &stage{options: o}
	var err error
	if s.dir, err = os.MkdirTemp(os.Getenv("TMPDIR"), "vfbench-"); err != nil {
		return s, fmt.Errorf("make directory: %w", err)
	}
	if s.site, err = site.Start(ctx, s.dir, o.bin); err != nil {
		return s, err
	}
	if s.daemon, err = client.New("unix://" + s.site.Socket); err != nil {
		return s, err
	}
	// A libvirtd that was just started finds out what QEMU can do when it is first asked, which
	// would count for whoever comes first.
	if _, err := s.site.Libvirtd.Virsh(ctx, "domcapabilities"); err != nil {
		return s, err
	}
	return s, s.makePools(ctx)
}

// makePools makes the pools, on file systems that have room for two volumes each.
func (s *stage) makePools(ctx context.Context) error {
	src, err := s.fileSystem(ctx, "one", lab.LoopFS)
	if err != nil {
		return err
	}
	dst, err := s.fileSystem(ctx, "other", lab.LoopFS)
	if err != nil {
		return err
	}
	s.src, s.near, s.dst = pool{"src", filepath.Join(src, "src")}, pool{"near", filepath.Join(src, "near")}, pool{"dst", filepath.Join(dst, "dst")}
	if slices.Contains(s.disks, 2) {
		second, err := s.fileSystem(ctx, "second", lab.MemoryFS)
		if err != nil {
			return err
		}
		s.second = pool{"second", filepath.Join(second, "second")}
	}
	for _, p := range s.pools() {
		if err := s.site.Libvirtd.DirPool(ctx, p.name, p.dir); err != nil {
			return err
		}
	}
	return nil
}

// pools are those that there are.
func (s *stage) pools() []pool {
	return slices.DeleteFunc([]pool{s.src, s.near, s.dst, s.second}, func(p pool) bool { return p.name == "" })
}

// destination is the pool that volumes are moved to, by a clone or on so many disks.
func (s *stage) destination(clone bool, disks uint64) pool {
	switch {
	case clone:
		return s.near
	case disks == 2:
		return s.second
	}
	return s.dst
}

// fileSystem makes one and returns where it is mounted.
func (s *stage) fileSystem(ctx context.Context, name string, make func(ctx context.Context, dir, fstype string, sizeMiB int64) (*lab.FS, error)) (string, error) {
	fs, err := make(ctx, filepath.Join(s.site.Libvirtd.Dir, name), s.fs, 2*s.sizeMiB+512)
	if err != nil {
		return "", err
	}
	s.fileSystems = append(s.fileSystems, fs)
	return fs.Dir, writeEveryBlock(ctx, filepath.Join(fs.Dir, "zeroes"))
}

// writeEveryBlock fills a file system once and empties it again. Below it is a sparse file, whose
// blocks cost more the first time that they are written.
func writeEveryBlock(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "dd", "if=/dev/zero", "of="+path, "bs=1M", "oflag=direct")
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "No space left") {
		return fmt.Errorf("write every block: %w: %s", err, out)
	}
	return os.Remove(path)
}

// makeVolume makes the next volume in pool src, with nothing of it in memory.
func (s *stage) makeVolume(ctx context.Context, fill lab.Fill, to pool) (volume, error) {
	s.volumes++
	name := fmt.Sprintf("v%d", s.volumes)
	v := volume{
		name: name, bytes: s.bytes(), to: to,
		src: filepath.Join(s.src.dir, name+".raw"), dst: filepath.Join(to.dir, name+"-dst.raw"),
	}
	if err := lab.MakeVolume(ctx, lab.Volume{Path: v.src, Format: "raw"}, v.bytes, fill); err != nil {
		return v, err
	}
	if err := evict(v.src); err != nil {
		return v, err
	}
	_, err := s.site.Libvirtd.Virsh(ctx, "pool-refresh", s.src.name)
	return v, err
}

// evict has the kernel forget the content of a file that is on disk.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("evict: %w", err)
	}
	if err := errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()); err != nil {
		return fmt.Errorf("evict %s: %w", path, err)
	}
	return nil
}

func makeSparse(path string, bytes int64) error {
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes)); err != nil {
		return fmt.Errorf("make destination: %w", err)
	}
	return nil
}

// watchGuest lets time pass in which the guest writes and nothing else is done.
func (s *stage) watchGuest(ctx context.Context) error { return letPass(ctx, s.seconds) }

// letPass waits.
func letPass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// empty removes what is in the pools.
func (s *stage) empty() error {
	var errs []error
	for _, p := range s.pools() {
		files, err := filepath.Glob(filepath.Join(p.dir, "*.raw"))
		errs = append(errs, err)
		for _, f := range files {
			errs = append(errs, os.Remove(f))
		}
	}
	return errors.Join(errs...)
}

// about describes machine and run.
func (s *stage) about(ctx context.Context) map[string]any {
	m := meter.Machine(s.src.dir)
	m["name"], m["at"] = "run", time.Now().UTC().Format(time.RFC3339)
	m["size_bytes"], m["fill_percent"], m["disks"], m["seed"], m["rounds"], m["file_system"] = s.bytes(), s.fills, s.disks, s.seed, s.rounds, s.fs
	for name, command := range map[string][]string{
		"qemu": {"qemu-system-x86_64", "--version"}, "libvirt": {"libvirtd", "--version"},
		"version": {filepath.Join(s.bin, "volferryd"), "--version"},
	} {
		out, _ := exec.CommandContext(ctx, command[0], command[1:]...).Output() // what is not known is left empty
		m[name], _, _ = strings.Cut(string(out), "\n")
	}
	return m
}

// close removes everything. It works on a stage that is not complete, too.
func (s *stage) close() error {
	var errs []error
	if s.daemon != nil {
		s.daemon.Close()
	}
	if s.site != nil {
		errs = append(errs, s.site.Close())
	}
	for _, fs := range s.fileSystems {
		errs = append(errs, fs.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
