// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"strconv"
	"time"
)

// slownessVariable says how many times slower than a host this machine is, as one that is itself
// emulated and emulates its guests once more.
const slownessVariable = "VOLFERRY_LAB_SLOWNESS"

// Limit is how long something may take here before it counts as stuck, if it may take that long
// on a host.
func Limit(onHost time.Duration) time.Duration {
	n, err := strconv.Atoi(os.Getenv(slownessVariable))
	if err != nil || n < 1 {
		return onHost
	}
	return onHost * time.Duration(n)
}
