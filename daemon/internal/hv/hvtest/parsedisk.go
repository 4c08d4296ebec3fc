// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// ParseDisk implements hv.Hypervisor.
func (*Fake) ParseDisk(definition string) (hv.Disk, error) { return parseDisk(definition) }

func parseDisk(definition string) (hv.Disk, error) {
	var disk hv.Disk
	if err := json.Unmarshal([]byte(definition), &disk); err != nil {
		return disk, fmt.Errorf("parse definition of disk: %w", err)
	}
	return disk, nil
}
