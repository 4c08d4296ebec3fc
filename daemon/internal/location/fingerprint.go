// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/printable"
)

// Fingerprint returns a text that distinguishes the image at a path from later images there, also
// after a reboot. It follows links. A file is identified by its inode and birth time. A device is
// identified by its own identity (WWID, UUID of a map, serial, the file of a loop device, the disk
// of a partition), or else by its number. The error wraps unix.ENOENT if there is nothing.
func Fingerprint(path string) (string, error) {
	if _, err := Stat(path); err != nil { // Stat has a time limit
		return "", err
	}
	return fingerprint(unix.AT_FDCWD, path, 0)
}

// FingerprintOf returns the Fingerprint of an open file.
func FingerprintOf(f *os.File) (string, error) {
	return fingerprint(int(f.Fd()), "", unix.AT_EMPTY_PATH)
}

func fingerprint(dir int, path string, flags int) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(dir, path, flags|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", &os.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return device(st.Rdev_major, st.Rdev_minor), nil
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprintf("inode %d", st.Ino), nil
	}
	return fmt.Sprintf("inode %d of %d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}

var sysDevBlock = "/sys/dev/block"

// ownIdentities are the files in sysfs with a device's own identity, the best first: LVM,
// multipath and other maps; NVMe; SCSI; virtio.
var ownIdentities = []string{"dm/uuid", "wwid", "device/wwid", "serial"}

// device identifies a block device by its own identity, or else by its number, which may change at
// each boot. It does not use links in /dev/disk, which udev makes later, from content that the
// guest can write.
func device(major, minor uint32) string {
	number := fmt.Sprintf("%d:%d", major, minor)
	dir, err := filepath.EvalSymlinks(filepath.Join(sysDevBlock, number))
	if err != nil {
		return devicePrefix + number
	}
	if text := selfOf(dir); text != "" {
		return devicePrefix + text
	}
	return devicePrefix + number
}

func selfOf(dir string) string {
	if text := firstAttribute(dir, ownIdentities...); text != "" {
		return text
	}
	if file := attribute(dir, "loop/backing_file"); file != "" {
		return loopOf(dir, file)
	}
	if number := attribute(dir, "partition"); number != "" {
		return partitionOf(dir, number)
	}
	return ""
}

func firstAttribute(dir string, files ...string) string {
	for _, file := range files {
		if text := attribute(dir, file); text != "" {
			return text
		}
	}
	return ""
}

func attribute(dir, file string) string {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// loopOf identifies a loop device by its file's path and Fingerprint, since the path may have
// another file by now, and by the part that the device shows.
func loopOf(dir, file string) string {
	text := "loop " + file
	if fingerprint, err := Fingerprint(file); err == nil {
		text += " " + fingerprint
	}
	for _, part := range []string{"offset", "sizelimit"} {
		if n := attribute(dir, "loop/"+part); n != "" && n != "0" {
			text += " " + part + " " + n
		}
	}
	return text
}

// partitionOf identifies a partition by its number and start on a disk, and by its UUID if the
// kernel knows it. The size is not included, because a partition may grow.
func partitionOf(dir, number string) string {
	disk := selfOf(filepath.Dir(dir))
	if disk == "" {
		return "" // its number is as good as the disk's
	}
	text := "partition " + number + " at sector " + attribute(dir, "start")
	for line := range strings.Lines(attribute(dir, "uevent")) {
		if uuid, ok := strings.CutPrefix(strings.TrimSpace(line), "PARTUUID="); ok {
			text += " uuid " + uuid
		}
	}
	return text + " of " + disk
}

var numbered = regexp.MustCompile(`^device \d+:\d+$`)

// SameImagePrint reports whether an earlier and a present fingerprint can belong to one image. The
// fingerprint of an image may change with multipath or another kernel (SameIdentity).
func SameImagePrint(earlier, now string) bool {
	if earlier == now {
		return true
	}
	identity := IdentityIn(now)
	return identity != "" && SameIdentity(IdentityIn(earlier), identity)
}

const devicePrefix = "device "

// IsDevicePrint reports whether a fingerprint belongs to a block device.
func IsDevicePrint(fingerprint string) bool { return strings.HasPrefix(fingerprint, devicePrefix) }

// IdentityIn returns the device identity in a fingerprint. It distinguishes the device from all
// others on each host that has the device. It is empty for a file, and for a device without a
// printable identity.
func IdentityIn(fingerprint string) string {
	if !IsDevicePrint(fingerprint) || numbered.MatchString(fingerprint) || printable.Text(fingerprint) != fingerprint {
		return ""
	}
	return strings.TrimPrefix(fingerprint, devicePrefix)
}

// SameIdentity reports whether two identities belong to one device. A LUN has different identities
// on hosts with and without multipath: the UUID of a multipath map contains the WWID in the
// notation of udev's scsi_id. The identity of a partition may lack the partition's UUID (Linux
// 6.1), and the identity of a kpartx map also its start. A value that one identity lacks is not
// compared.
func SameIdentity(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	one, is := partIn(a)
	other, both := partIn(b)
	if !is || !both {
		return wwidIn(a) == wwidIn(b)
	}
	return one.number == other.number && agree(one.sector, other.sector) && agree(one.uuid, other.uuid) && SameIdentity(one.disk, other.disk)
}

type part struct{ number, sector, uuid, disk string }

// partIdentity matches the identities of a kernel partition (partitionOf) and of a kpartx map.
var partIdentity = regexp.MustCompile(`^(?:partition (\d+) at sector (\d*)(?: uuid (\S+))? of |part(\d+)-)(.+)$`)

func partIn(identity string) (p part, is bool) {
	m := partIdentity.FindStringSubmatch(identity)
	if m == nil {
		return p, false
	}
	return part{number: m[1] + m[4], sector: m[2], uuid: m[3], disk: m[5]}, true
}

func agree(a, b string) bool { return a == "" || b == "" || a == b }

// namingTypes maps the first digit of a WWID from scsi_id to the prefix that the kernel writes
// instead.
var namingTypes = map[byte]string{'3': "naa.", '2': "eui."}

func wwidIn(identity string) string {
	text, isMap := strings.CutPrefix(identity, "mpath-")
	if !isMap || text == "" {
		return identity
	}
	if naming, known := namingTypes[text[0]]; known {
		return naming + text[1:]
	}
	return text
}
