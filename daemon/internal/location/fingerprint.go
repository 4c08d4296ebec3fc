// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// Fingerprint tells the image at a path (links are followed) from a later image at the same
// path, also after a reboot. For a file it has the inode and its birth time. For a device
// it has what the device says of itself (WWID, UUID of a map, serial, the file of a loop
// device, the disk of a partition), or its number if it says nothing. The error wraps
// unix.ENOENT if there is nothing.
func Fingerprint(path string) (string, error) {
	if _, err := Stat(path); err != nil { // which has a bound
		return "", err
	}
	return fingerprint(unix.AT_FDCWD, path, 0)
}

// FingerprintOf is Fingerprint of an open file.
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

// sysDevBlock has a directory for each block device, by number. It is a variable for the
// tests.
var sysDevBlock = "/sys/dev/block"

// ownIdentities are the files in which a device says which one it is, the best first:
// LVM, multipath and other maps; NVMe; SCSI; virtio.
var ownIdentities = []string{"dm/uuid", "wwid", "device/wwid", "serial"}

// device names a block device by what it says of itself, and where it says nothing by its
// number, which is given anew at each boot. The links in /dev/disk are not asked: udev makes
// them later, and from what is written on a disk, which is the guest's.
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

// selfOf is what the device with this directory in /sys says of itself, "" if nothing.
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

// firstAttribute reads the first of these files of /sys that says something.
func firstAttribute(dir string, files ...string) string {
	for _, file := range files {
		if text := attribute(dir, file); text != "" {
			return text
		}
	}
	return ""
}

// attribute reads a file of /sys, "" if there is none.
func attribute(dir, file string) string {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// loopOf names a loop device by its file and the part of that which it shows. The path alone
// would not do: another file may be there by now.
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

// partitionOf names a partition by its place on a disk, and by its UUID where the kernel knows
// that. The size is not part of it: a partition may grow.
func partitionOf(dir, number string) string {
	disk := selfOf(filepath.Dir(dir))
	if disk == "" {
		return "" // the number of the partition is as good as that of the disk
	}
	text := "partition " + number + " at sector " + attribute(dir, "start")
	for line := range strings.Lines(attribute(dir, "uevent")) {
		if uuid, ok := strings.CutPrefix(strings.TrimSpace(line), "PARTUUID="); ok {
			text += " uuid " + uuid
		}
	}
	return text + " of " + disk
}

// numbered is the fingerprint of a device that says nothing of itself.
var numbered = regexp.MustCompile(`^device \d+:\d+$`)

// IsNumberPrint reports whether a fingerprint is of a device that says nothing of itself.
func IsNumberPrint(fingerprint string) bool { return numbered.MatchString(fingerprint) }

// SameImagePrint reports whether two fingerprints, an earlier and a present one, can belong to one
// image. If a device had only a number in the earlier one and says more now, an older version of
// this program took the earlier one: that they differ proves nothing then. Nor does it that a host
// has multipath or another kernel since (SameIdentity).
func SameImagePrint(earlier, now string) bool {
	if earlier == now {
		return true
	}
	identity := IdentityIn(now)
	return identity != "" && (IsNumberPrint(earlier) || SameIdentity(IdentityIn(earlier), identity))
}

// devicePrefix begins the fingerprint of a block device, before what the device says of itself.
const devicePrefix = "device "

// IsDevicePrint reports whether a fingerprint belongs to a block device.
func IsDevicePrint(fingerprint string) bool { return strings.HasPrefix(fingerprint, devicePrefix) }

// IdentityIn is what a device says of itself, by its fingerprint: it tells the device from every
// other one, on each host that has it. It is empty for a file, and for a device that says nothing,
// or nothing that can be printed.
func IdentityIn(fingerprint string) string {
	if !IsDevicePrint(fingerprint) || IsNumberPrint(fingerprint) || api.Printable(fingerprint) != fingerprint {
		return ""
	}
	return strings.TrimPrefix(fingerprint, devicePrefix)
}

// SameIdentity reports whether two identities are those of one device. A LUN has another one on a
// host with multipath than on a host without: the UUID of the map there has the WWID in it, in the
// words of udev's scsi_id. A partition has its UUID in it only where the kernel says that (Linux
// 6.1 does not), and as a map of kpartx neither that nor where it begins: what one of the two does
// not say is not compared.
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

// part is what the identity of a partition says.
type part struct{ number, sector, uuid, disk string }

// partIdentity is the identity of a partition of the kernel's (partitionOf), and of one that kpartx
// has made a map of.
var partIdentity = regexp.MustCompile(`^(?:partition (\d+) at sector (\d*)(?: uuid (\S+))? of |part(\d+)-)(.+)$`)

func partIn(identity string) (p part, is bool) {
	m := partIdentity.FindStringSubmatch(identity)
	if m == nil {
		return p, false
	}
	return part{number: m[1] + m[4], sector: m[2], uuid: m[3], disk: m[5]}, true
}

// agree reports whether two texts are the same where both say something.
func agree(a, b string) bool { return a == "" || b == "" || a == b }

// namingTypes are the digits with which scsi_id begins a WWID, and what the kernel writes in their
// place.
var namingTypes = map[byte]string{'3': "naa.", '2': "eui."}

// wwidIn is the WWID of the LUN or namespace that a multipath map is made of, and any other
// identity as it is.
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
