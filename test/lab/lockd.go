// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// UseLockManager has a libvirtd that is started with its state below dir use virtlockd, which is started
// before it. lockspace is the directory of the leases of files (file_lockspace_dir), below dir; with
// an empty one the leases are locks on the images themselves, as is libvirt's default.
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

// Leased reports whether virtlockd holds a lock on the file at path: an image, or a lease in a lockspace.
// The kernel is asked (/proc/locks).
func (l *Libvirtd) Leased(path string) (bool, error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); errors.Is(err, unix.ENOENT) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for the lease of %s: %w", path, err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false, fmt.Errorf("look for the lease of %s: %w", path, err)
	}
	pid := strconv.Itoa(l.virtlockd.cmd.Process.Pid)
	at := fmt.Sprintf("%02x:%02x:%d", unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 0
		if fields := strings.Fields(line); len(fields) > 5 && fields[1] == "POSIX" && fields[4] == pid && fields[5] == at {
			return true, nil
		}
	}
	return false, nil
}

// LeaseIn is the file that virtlockd locks for an image, where libvirt has a lockspace for files.
func LeaseIn(lockspace, image string) string {
	return filepath.Join(lockspace, fmt.Sprintf("%x", sha256.Sum256([]byte(image))))
}
