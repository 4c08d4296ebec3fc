// SPDX-License-Identifier: Apache-2.0

// Package render turns volferryctl's data into text: tables, records of one object, and the
// progress of a migration.
package render
