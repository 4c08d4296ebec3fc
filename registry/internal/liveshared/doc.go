// SPDX-License-Identifier: Apache-2.0

// Package liveshared moves volumes while all their guests write. The loop has the hosts
// follow what their guests write and copy it in rounds, and read and copy what is left when
// all of them stand still; the pause itself is of package pauseall. The store has all that
// the loop must remember, and the ids of its requests follow from the migration, so it may be
// ended at any moment and the next loop goes on. It does not know how writes are followed or
// copied. The models in its tests prove the rules of DESIGN.md.
package liveshared
