// SPDX-License-Identifier: Apache-2.0

// Package render turns volferryctl's data into text: tables that fit the terminal, records of one
// thing, and the progress of a migration. It escapes control characters (Cell, Text). It knows only
// its writers, not sockets, flags or commands.
package render
