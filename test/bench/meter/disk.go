// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// DiskBytes are those that everybody together has read from a disk and written to it.
type DiskBytes struct {
	Read    int64 `json:"read"`
	Written int64 `json:"written"`
}

// Since are the bytes since an earlier reading.
func (b DiskBytes) Since(earlier DiskBytes) DiskBytes {
	return DiskBytes{Read: b.Read - earlier.Read, Written: b.Written - earlier.Written}
}

// DiskUnder reads the counters of the disk that the file system of dir is on.
func DiskUnder(dir string) (DiskBytes, error) {
	p, err := placeOf(dir)
	if err != nil {
		return DiskBytes{}, err
	}
	if p.device == "" {
		return DiskBytes{}, fmt.Errorf("read counters of a disk: %s is in a file system (%s) on no disk", dir, p.fsType)
	}
	text, err := os.ReadFile("/sys/dev/block/" + p.device + "/stat")
	if err != nil {
		return DiskBytes{}, fmt.Errorf("read counters of a disk: %w", err)
	}
	// reads, merged, sectors, ms, writes, merged, sectors, ms, ...
	const read, written, sectorBytes = 2, 6, 512
	fields := strings.Fields(string(text))
	var sectors [2]int64
	for i, at := range []int{read, written} {
		if at >= len(fields) {
			return DiskBytes{}, fmt.Errorf("read counters of a disk: %q", text)
		}
		if sectors[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return DiskBytes{}, fmt.Errorf("read counters of a disk: %w", err)
		}
	}
	return DiskBytes{Read: sectors[0] * sectorBytes, Written: sectors[1] * sectorBytes}, nil
}
