// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Serve is called first in the TestMain of a program that uses Start. In the process that
// serves the disks it does not return.
func Serve() {
	text := os.Getenv(configVar)
	if text == "" {
		return
	}
	var cfg Config
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		err = serve(cfg, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// server serves the disks of one directory.
type server struct {
	disks []*disk
	data  *os.File // of the writes, one behind the other

	mu        sync.Mutex
	recording bool
	entries   []Entry
	end       int64 // of data
}

// serve serves the disks until in ends.
func serve(cfg Config, in io.Reader, out io.Writer) (err error) {
	s := &server{}
	if s.data, err = os.OpenFile(filepath.Join(cfg.Dir, "data"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return fmt.Errorf("serve disks: %w", err)
	}
	for i, c := range cfg.Disks {
		d := &disk{number: i, size: c.sizeBytes()}
		if d.live, err = os.OpenFile(cfg.image(c.Name), os.O_RDWR, 0); err != nil {
			return fmt.Errorf("serve disks: %w", err)
		}
		s.disks = append(s.disks, d)
	}
	root := &fs.Inode{}
	mounted, err := fs.Mount(cfg.mountPoint(), root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, MaxWrite: 512 << 10, DisableXAttrs: true, FsName: "tape"},
		OnAdd: func(ctx context.Context) {
			for i, c := range cfg.Disks {
				for name, f := range map[string]fs.InodeEmbedder{
					c.Name:          &liveFile{s: s, d: s.disks[i]},
					c.Name + cutExt: &cutFile{d: s.disks[i]},
				} {
					root.AddChild(name, root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG}), false)
				}
			}
		},
	})
	if err != nil {
		return fmt.Errorf("serve disks: %w", err)
	}
	answers, requests := json.NewEncoder(out), json.NewDecoder(in)
	if err := answers.Encode(response{}); err != nil {
		return err
	}
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, mounted.Unmount())
		}
		a := response{}
		if err := s.do(cfg, r, &a); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (s *server) do(cfg Config, r request, a *response) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Do {
	case doRecord:
		return s.record(cfg)
	case doStop:
		s.recording = false
		a.Entries = s.entries
		return nil
	case doCut:
		for i, d := range s.disks {
			if err := d.cutAt(s.entries[:r.Cut.After], r.Cut.Loss[i], r.Cut.Seed, s.written); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("unknown request %q", r.Do)
	}
}

// record begins anew, with the disks as they are. Whoever uses them has synced them.
func (s *server) record(cfg Config) error {
	s.entries, s.end = nil, 0
	for i, c := range cfg.Disks {
		d := s.disks[i]
		var err error
		if d.base, err = cloneFile(d.live, cfg.image(c.Name)+".base"); err != nil {
			return err
		}
		d.settled, d.upTo, d.cut = map[int64]*block{}, 0, map[int64]*block{}
	}
	s.recording = true
	return nil
}

// cloneFile copies the data of a sparse file.
func cloneFile(from *os.File, path string) (*os.File, error) {
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return nil, err
	}
	for at := int64(0); ; {
		begin, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return to, nil
		}
		if err != nil {
			return nil, err
		}
		if at, err = unix.Seek(int(from.Fd()), begin, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, begin), io.NewSectionReader(from, begin, at-begin)); err != nil {
			return nil, err
		}
	}
}

// written is what an entry has left in its place.
func (s *server) written(e Entry) ([]byte, error) {
	data := make([]byte, e.Length)
	if e.Kind == Zero {
		return data, nil
	}
	_, err := s.data.ReadAt(data, e.Data)
	return data, err
}

// change is one write to a disk that is used: recorded first, as one that is on its way.
func (s *server) change(d *disk, kind Kind, data []byte, offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recording {
		e := Entry{Disk: d.number, Kind: kind, Offset: offset, Length: int64(len(data)), At: time.Now(), Data: s.end}
		if kind == Write {
			if _, err := s.data.WriteAt(data, s.end); err != nil {
				return err
			}
			s.end += e.Length
		}
		s.entries = append(s.entries, e)
	}
	if kind == Flush {
		return nil
	}
	_, err := d.live.WriteAt(data, offset)
	return err
}

// liveFile is a disk that is used.
type liveFile struct {
	fs.Inode
	s *server
	d *disk
}

var (
	_ fs.NodeOpener    = (*liveFile)(nil)
	_ fs.NodeReader    = (*liveFile)(nil)
	_ fs.NodeWriter    = (*liveFile)(nil)
	_ fs.NodeFsyncer   = (*liveFile)(nil)
	_ fs.NodeAllocater = (*liveFile)(nil)
	_ fs.NodeGetattrer = (*liveFile)(nil)
	_ fs.NodeOpener    = (*cutFile)(nil)
	_ fs.NodeReader    = (*cutFile)(nil)
	_ fs.NodeWriter    = (*cutFile)(nil)
	_ fs.NodeFsyncer   = (*cutFile)(nil)
	_ fs.NodeAllocater = (*cutFile)(nil)
	_ fs.NodeGetattrer = (*cutFile)(nil)
)

// Open has the kernel keep nothing of the file: each write is ours at once.
func (f *liveFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *liveFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	n, err := f.d.live.ReadAt(dest, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest[:n]), 0
}

func (f *liveFile) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	return uint32(len(data)), errnoOf(f.s.change(f.d, Write, data, offset))
}

// Fsync is a flush of the disk.
func (f *liveFile) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return errnoOf(f.s.change(f.d, Flush, nil, 0))
}

// Allocate is a discard, or a write of zeroes.
func (f *liveFile) Allocate(_ context.Context, _ fs.FileHandle, offset, size uint64, mode uint32) syscall.Errno {
	if !zeroes(mode) {
		return syscall.EOPNOTSUPP
	}
	return errnoOf(f.s.change(f.d, Zero, make([]byte, size), int64(offset)))
}

func (f *liveFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o600, uint64(f.d.size)
	return 0
}

// cutFile is a disk as it was at the last cut. What is written to it is gone with the next one.
type cutFile struct {
	fs.Inode
	d *disk
}

// Open is as that of a disk that is used.
func (f *cutFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *cutFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	dest = dest[:min(int64(len(dest)), max(0, f.d.size-offset))]
	if err := f.d.readCut(dest, offset); err != nil {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest), 0
}

func (f *cutFile) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	return uint32(len(data)), errnoOf(f.d.writeCut(data, offset))
}

// Fsync does nothing: nobody cuts the power of this one.
func (f *cutFile) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Allocate is a discard, or a write of zeroes.
func (f *cutFile) Allocate(_ context.Context, _ fs.FileHandle, offset, size uint64, mode uint32) syscall.Errno {
	if !zeroes(mode) {
		return syscall.EOPNOTSUPP
	}
	return errnoOf(f.d.writeCut(make([]byte, size), int64(offset)))
}

func (f *cutFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o600, uint64(f.d.size)
	return 0
}

// zeroes reports whether an fallocate leaves zeroes.
func zeroes(mode uint32) bool {
	return mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0
}

func errnoOf(err error) syscall.Errno {
	if err != nil {
		return syscall.EIO
	}
	return 0
}
