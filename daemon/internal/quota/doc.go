// SPDX-License-Identifier: Apache-2.0

// Package quota reads what the kernel says of the quotas of a filesystem: how much the files of a
// user, of a group and of a project may take there. It knows nothing of what the files are for.
package quota
