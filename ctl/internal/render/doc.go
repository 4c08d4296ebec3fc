// SPDX-License-Identifier: Apache-2.0

// Package render turns volferryctl's data into text: tables, records, progress.
package render
