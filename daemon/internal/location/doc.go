// SPDX-License-Identifier: Apache-2.0

// Package location knows where on this host the bytes of a volume may be, and which paths, pools
// and disks of domains exist there already. It only reads, and knows nothing of ops.
package location
