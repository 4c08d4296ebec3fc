// SPDX-License-Identifier: Apache-2.0

// Package optest tests op kinds. It has the matrix that every kind passes (Matrix), a journal in
// memory that fails and crashes on demand (Journal), and the suite that every journal passes
// (JournalConformance). It knows nothing of the effects of ops.
package optest
