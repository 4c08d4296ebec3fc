// SPDX-License-Identifier: Apache-2.0

package hvtest

type bitmap struct {
	name      string
	unitBytes int64
	recording bool
	units     map[int64]bool
}
