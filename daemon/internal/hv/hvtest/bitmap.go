// SPDX-License-Identifier: Apache-2.0

package hvtest

// bitmap is a dirty bitmap of one live disk.
type bitmap struct {
	name      string
	unitBytes int64
	recording bool
	units     map[int64]bool
}
