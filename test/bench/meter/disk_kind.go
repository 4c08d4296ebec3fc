// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DiskKind says what the disk is that the file system of dir is on, as far as the kernel knows: its
// name, bus, model, and whether it rotates, which is taken for granted of most that are virtual. Of
// a loop device it is the disk that its file is on, and without a disk the type of the file system.
func DiskKind(dir string) string { return sysfs("/sys").kindUnder(dir) }

// sysfs is where the kernel describes devices.
type sysfs string

func (s sysfs) kindUnder(dir string) string {
	p, err := placeOf(dir)
	switch {
	case err != nil:
		return "" // what is not known is left empty
	case p.device == "":
		return p.fsType
	}
	return s.kindOf(p.device)
}

// kindOf describes the block device with a number.
func (s sysfs) kindOf(number string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(string(s), "dev/block", number))
	if err != nil {
		return ""
	}
	if line(path, "partition") != "" {
		path = filepath.Dir(path) // the disk
	}
	name := filepath.Base(path)
	if file := line(path, "loop/backing_file"); file != "" {
		return s.kindUnder(filepath.Dir(file))
	}
	var below []string
	slaves, _ := filepath.Glob(filepath.Join(path, "slaves/*"))
	for _, slave := range slaves {
		below = append(below, s.kindOf(line(slave, "dev")))
	}
	if len(below) > 0 {
		return name + " over " + strings.Join(below, ", ")
	}
	var words []string
	if bus, err := os.Readlink(filepath.Join(path, "device/subsystem")); err == nil {
		words = append(words, filepath.Base(bus))
	}
	if model := line(path, "device/model"); model != "" {
		words = append(words, model)
	}
	words = append(words, "rotational="+line(path, "queue/rotational"))
	return fmt.Sprintf("%s (%s)", name, strings.Join(words, ", "))
}

// line is what the kernel says in a file of a device; empty where there is none.
func line(device, file string) string {
	text, _ := os.ReadFile(filepath.Join(device, file))
	return strings.TrimSpace(string(text))
}
