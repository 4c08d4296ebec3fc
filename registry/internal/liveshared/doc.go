// SPDX-License-Identifier: Apache-2.0

// Package liveshared is the move of a volume that several guests write, on one host or on
// several, with a pause that does not grow with the volume. DESIGN.md says how it is
// done. So far the package has models alone: its tests search all interleavings of the
// copy and of the pause for a lost write. It must not know how a host copies blocks.
package liveshared
