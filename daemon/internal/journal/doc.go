// SPDX-License-Identifier: Apache-2.0

// Package journal stores ops, their records and blobs in one SQLite file on the host. It owns the
// tables, and promises that acknowledged writes survive a power cut. It does not interpret the
// records.
package journal
