// SPDX-License-Identifier: Apache-2.0

// Package mutations breaks the code of a move on purpose, one line at a time, and claims that
// the simulations find each break. It must not know how they do.
package mutations
