// SPDX-License-Identifier: Apache-2.0

// Package quota reads the quotas of a filesystem from the kernel: how much space the files of a
// user, of a group and of a project may take.
package quota
