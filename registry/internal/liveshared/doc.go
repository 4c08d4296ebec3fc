// SPDX-License-Identifier: Apache-2.0

// Package liveshared moves volumes while all their guests write. Its loop makes the hosts track
// their guests' writes and copy them in rounds; the last round is copied while all guests are
// paused. Package pauseall does the pause itself. All state is in the store, and the ids of its
// requests follow from the migration, so the loop may stop at any moment and a new one continues.
// The package does not know how writes are tracked or copied. The models in its tests prove the
// rules of DESIGN.md.
package liveshared
