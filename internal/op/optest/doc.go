// SPDX-License-Identifier: Apache-2.0

// Package optest proves op kinds. It owns the matrix that every kind passes
// (Matrix), a journal in memory that fails and crashes on demand (Journal), and
// the suite that every journal passes (JournalConformance). It knows nothing of
// what ops do.
package optest
