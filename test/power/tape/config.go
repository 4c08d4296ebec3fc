// SPDX-License-Identifier: Apache-2.0

package tape

import "path/filepath"

// configVar has the Config of the process that serves the disks, which is this program again.
const configVar = "VOLFERRY_TAPE"

const (
	doRecord = "record"
	doStop   = "stop"
	doCut    = "cut"
)

// cutExt ends the name of a disk as it was at a cut.
const cutExt = ".cut"

// DiskConfig is one disk.
type DiskConfig struct {
	Name    string
	FS      string // ext4, xfs or btrfs
	SizeMiB int64  // of a sparse file; xfs wants 300 at least
}

func (c DiskConfig) sizeBytes() int64 { return c.SizeMiB << 20 }

// Config is the disks of one directory.
type Config struct {
	Dir   string
	Disks []DiskConfig
}

func (c Config) image(name string) string { return filepath.Join(c.Dir, name+".img") }

func (c Config) mountPoint() string { return filepath.Join(c.Dir, "disks") }

// request is what the process is asked for, a line of its standard input; response what it answers.
type (
	request struct {
		Do  string `json:"do"`
		Cut Cut    `json:"cut"`
	}
	response struct {
		Error   string  `json:"error,omitempty"`
		Entries []Entry `json:"entries,omitempty"`
	}
)
