// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

type parts map[string]bool

func (all parts) hasAny(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return all[name] })
}

// namesOf returns the names of a file or device, its number first. A second name is common to all
// devices that show one LUN or namespace, one partition of it, or the same part of a file.
func namesOf(id Identity) []string {
	if !id.Block {
		return []string{fmt.Sprintf("file %d %d", id.Dev, id.Inode)}
	}
	number := fmt.Sprintf("%d:%d", unix.Major(id.Dev), unix.Minor(id.Dev))
	dir, err := filepath.EvalSymlinks(filepath.Join(sysDevBlock, number))
	if err != nil {
		return []string{number}
	}
	other := wwid(dir)
	if attribute(dir, "partition") != "" {
		other = at("sector", attribute(dir, "start"), wwid(filepath.Dir(dir)))
	}
	if file, err := loopFile(dir); err == nil && file != nil {
		other = at("byte", attribute(dir, "loop/offset"), namesOf(*file)[0])
	}
	if other == "" {
		return []string{number}
	}
	return []string{number, other}
}

func at(unit, offset, of string) string {
	if of == "" {
		return ""
	}
	return unit + " " + offset + " of " + of
}

func wwid(dir string) string { return firstAttribute(dir, "wwid", "device/wwid") }

func madeOf(id Identity) (parts, error) {
	all := parts{}
	return all, all.add(id)
}

func (all parts) add(id Identity) error {
	own := namesOf(id)
	if all[own[0]] {
		return nil
	}
	for _, name := range own {
		all[name] = true
	}
	if !id.Block {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(sysDevBlock, own[0]))
	if err != nil {
		return ignoreAbsent(err)
	}
	if attribute(dir, "partition") != "" {
		return all.addDevice(filepath.Dir(dir))
	}
	if file, err := loopFile(dir); err != nil || file != nil {
		if err == nil {
			err = all.add(*file)
		}
		return err
	}
	lower, err := os.ReadDir(filepath.Join(dir, "slaves"))
	if err != nil {
		return ignoreAbsent(err)
	}
	for _, link := range lower {
		if err := all.addDevice(filepath.Join(dir, "slaves", link.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (all parts) addDevice(dir string) error {
	var major, minor uint32
	text := attribute(dir, "dev")
	if _, err := fmt.Sscanf(text, "%d:%d", &major, &minor); err != nil {
		return fmt.Errorf("%s says %q and no number of a device", filepath.Join(dir, "dev"), text)
	}
	return all.add(Identity{Block: true, Dev: unix.Mkdev(major, minor)})
}

// loopFile returns the file of the loop device with the directory dir in /sys. It returns nil for
// another device, and for a deleted file, which is no volume's image.
func loopFile(dir string) (*Identity, error) {
	path := attribute(dir, "loop/backing_file")
	if path == "" {
		return nil, nil
	}
	id, err := Identify(path)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	return &id, nil
}
