// SPDX-License-Identifier: Apache-2.0

package thin

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pool has the usage of an LVM thin pool, and its name VG/POOL.
type Pool struct {
	Name string
	Usage
}

// Usage is the usage of a thin pool.
type Usage struct {
	// Data and Metadata are the used fractions of the pool's space, from 0 to 1. They are 0 for a
	// failed pool.
	Data, Metadata float64
	// Trouble is why the pool accepts no new data, or "".
	Trouble string
}

// Device is a thin pool as a device of the device mapper.
type Device struct {
	Name   string
	Number uint64
}

// Devices returns the active LVM thin pools of this host. sys is the directory /sys.
func Devices(sys string) ([]Device, error) {
	dirs, err := filepath.Glob(filepath.Join(sys, "block", "dm-*"))
	if err != nil {
		return nil, err
	}
	var found []Device
	for _, dir := range dirs {
		uuid, err := attribute(dir, "dm/uuid")
		// LVM gives the device of a thin pool such a UUID (LVM_UUID_LAYER of lvm2).
		if err != nil || !strings.HasPrefix(uuid, "LVM-") || !strings.HasSuffix(uuid, "-tpool") {
			continue // or the device is gone
		}
		name, err := attribute(dir, "dm/name")
		if err != nil {
			continue
		}
		number, err := attribute(dir, "dev")
		if err != nil {
			continue
		}
		device, ok := parseDevice(number)
		if !ok {
			return nil, fmt.Errorf("the number of %s is %q", dir, number)
		}
		found = append(found, Device{Name: nameOf(name), Number: device})
	}
	return found, nil
}

func attribute(dir, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(text)), err
}

// nameOf converts LVM's device name VG-POOL-tpool, with doubled hyphens in the names, to VG/POOL.
func nameOf(device string) string {
	const doubled = "\x00"
	parts := strings.Split(strings.ReplaceAll(device, "--", doubled), "-")
	if len(parts) != 3 {
		return device
	}
	return strings.ReplaceAll(parts[0]+"/"+parts[1], doubled, "-")
}

// Status returns the status of a thin pool, for ParseStatus. It does not wait for a suspended
// pool. control is the device Control, open for writing. It needs CAP_SYS_ADMIN.
func Status(control *os.File, device uint64) (string, error) {
	kind, params, err := query(control, device, unix.DM_NOFLUSH_FLAG)
	if err == nil && kind != "thin-pool" {
		err = fmt.Errorf("device %d:%d is no thin pool", unix.Major(device), unix.Minor(device))
	}
	return params, err
}

// ParseStatus parses the status of a thin pool: "TRANSACTION USED/TOTAL_METADATA USED/TOTAL_DATA
// ROOT MODE ...", or one word for a failed pool.
func ParseStatus(status string) (Usage, error) {
	words := strings.Fields(status)
	if len(words) == 1 && (words[0] == "Fail" || words[0] == "Error") {
		return Usage{Trouble: "it has failed"}, nil
	}
	if len(words) < 5 {
		return Usage{}, fmt.Errorf("the status of a thin pool is %q", status)
	}
	metadata, ok1 := part(words[1])
	data, ok2 := part(words[2])
	if !ok1 || !ok2 {
		return Usage{}, fmt.Errorf("the status of a thin pool is %q", status)
	}
	u := Usage{Data: data, Metadata: metadata}
	switch words[4] {
	case "rw":
	case "ro":
		u.Trouble = "it is read-only"
	case "out_of_data_space":
		u.Trouble = "it has no room for data"
	default:
		return Usage{}, fmt.Errorf("the status of a thin pool is %q", status)
	}
	return u, nil
}

func part(text string) (float64, bool) {
	usedText, totalText, _ := strings.Cut(text, "/")
	used, err1 := strconv.ParseUint(usedText, 10, 64)
	total, err2 := strconv.ParseUint(totalText, 10, 64)
	if err1 != nil || err2 != nil || total == 0 {
		return 0, false
	}
	return float64(used) / float64(total), true
}
