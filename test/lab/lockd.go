// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// UseLockManager has a libvirtd that is started with its state below dir use virtlockd, which is
// started before it. lockspace is the directory of the leases of files (file_lockspace_dir), below
// dir; with an empty one the leases are locks on the images themselves, as is libvirt's default.
func UseLockManager(dir, lockspace string) error {
	etc := filepath.Join(dir, "etc")
	leases := ""
	if lockspace != "" {
		leases = fmt.Sprintf("file_lockspace_dir = %q\n", lockspace)
	}
	err := os.MkdirAll(etc, 0o755)
	for name, text := range map[string]string{
		"qemu.conf":       configFiles["qemu.conf"] + "lock_manager = \"lockd\"\n",
		"qemu-lockd.conf": leases,
		virtlockdConf:     "log_outputs = \"2:file:/var/log/libvirt/virtlockd.log\"\n",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644))
	}
	if err != nil {
		return fmt.Errorf("have libvirtd use virtlockd: %w", err)
	}
	return nil
}

// Leased reports whether virtlockd holds a lock on the file at path: an image, or a lease in a
// lockspace. The kernel is asked. A lease on the same file that TakeLease took is given up by that.
func (l *Libvirtd) Leased(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if err == nil {
		err = errors.Join(unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock), file.Close())
	}
	if err != nil {
		return false, fmt.Errorf("look for the lease of %s: %w", path, err)
	}
	return lock.Type != unix.F_UNLCK && int(lock.Pid) == l.virtlockd.cmd.Process.Pid, nil
}

// LeaseIn is the file that virtlockd locks for an image, where libvirt has a lockspace for files.
func LeaseIn(lockspace, image string) string {
	return filepath.Join(lockspace, fmt.Sprintf("%x", sha256.Sum256([]byte(image))))
}

// TakeLease locks a file that a virtlockd locks for an image, as the virtlockd of another host
// does. It reports whether that was possible, and returns what ends it.
func TakeLease(path string) (end func() error, taken bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("take the lease of %s: %w", path, err)
	}
	err = unix.FcntlFlock(file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
	if err == nil {
		return file.Close, true, nil
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = nil
	}
	return nil, false, errors.Join(err, file.Close())
}
