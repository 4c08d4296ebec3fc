// SPDX-License-Identifier: Apache-2.0

// Package journal stores ops, their records and blobs in one SQLite file on the host. Acknowledged
// writes survive a power cut.
package journal
