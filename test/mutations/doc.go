// SPDX-License-Identifier: Apache-2.0

// Package mutations breaks the code on purpose, one line at a time, and claims that a simulation
// finds each break: not any test, but the one that tries everything, or what chance brings. It must
// not know how.
package mutations
