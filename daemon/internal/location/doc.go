// SPDX-License-Identifier: Apache-2.0

// Package location knows where on this host the bytes of a volume may be, and which things exist
// there already: paths, pools, and the disks of domains. It only reads, and knows nothing of ops.
package location
