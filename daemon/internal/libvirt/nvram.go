// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/beevik/etree"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

const (
	// maxNVRAM is far above the size of any firmware's variables (OVMF: 528 KiB).
	maxNVRAM  = 16 << 20
	nvramMode = 0o600
)

// readNVRAM returns the variables of a UEFI guest, or nil. It follows no link: QEMU may write to
// the directory.
func (l *library) readNVRAM(domain *etree.Element) ([]byte, error) {
	_, file, err := domainxml.NVRAMElement(domain)
	if err != nil || file == "" {
		return nil, err
	}
	name := strings.TrimPrefix(file, domainxml.NVRAMHome)
	if path.Base(file) != name {
		return nil, domainxml.LeansOn("%s as its NVRAM, which is in no %s", file, domainxml.NVRAMHome)
	}
	dir, err := os.OpenRoot(l.nvram())
	if errors.Is(err, fs.ErrNotExist) {
		// libvirt makes the directory at the first start of a UEFI guest. Its parent exists since
		// libvirt's installation.
		if _, err := os.Stat(l.state); err != nil {
			return nil, fmt.Errorf("look for NVRAM where libvirt is said to keep it: %w", err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open directory of NVRAM: %w", err)
	}
	defer func() { _ = dir.Close() }()
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // libvirt makes it at the first start
	}
	if err != nil {
		return nil, fmt.Errorf("open NVRAM: %w", err)
	}
	defer func() { _ = f.Close() }()
	return readVariables(f)
}

func readVariables(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("inspect NVRAM: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxNVRAM {
		return nil, fmt.Errorf("%w: NVRAM %s is no regular file of at most %d bytes", hv.ErrUnsupported, f.Name(), maxNVRAM)
	}
	variables, err := io.ReadAll(io.LimitReader(f, maxNVRAM))
	if err != nil {
		return nil, fmt.Errorf("read NVRAM: %w", err)
	}
	return variables, nil
}

// writeNVRAM atomically and durably replaces an NVRAM file. The file gets the directory's owner:
// QEMU's user, if libvirt does not change the owner itself.
func (l *library) writeNVRAM(name string, variables []byte) error {
	if err := os.MkdirAll(l.nvram(), 0o755); err != nil {
		return fmt.Errorf("make directory of NVRAM: %w", err)
	}
	dir, err := os.OpenRoot(l.nvram())
	if err != nil {
		return fmt.Errorf("open directory of NVRAM: %w", err)
	}
	defer func() { _ = dir.Close() }()
	temp := name + "." + uuid.NewString()
	if err := writeNew(dir, temp, variables); err != nil {
		return errors.Join(fmt.Errorf("write NVRAM: %w", err), dir.RemoveAll(temp))
	}
	if err := dir.Rename(temp, name); err != nil {
		return errors.Join(fmt.Errorf("put NVRAM in place: %w", err), dir.RemoveAll(temp))
	}
	if err := syncPath(dir, "."); err != nil {
		return fmt.Errorf("put NVRAM in place: %w", err)
	}
	return nil
}

func writeNew(dir *os.Root, name string, content []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, nvramMode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if info, statErr := dir.Stat("."); err == nil && statErr == nil {
		if owner, isUnix := info.Sys().(*syscall.Stat_t); isUnix {
			err = f.Chown(int(owner.Uid), int(owner.Gid))
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncPath(dir *os.Root, name string) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
