// SPDX-License-Identifier: Apache-2.0

// Package render turns what volferryctl knows into text: tables that fit the
// terminal, records of one thing, and the progress of a migration. Control characters are
// escaped (Cell, Text). It writes to the writers that it is given, and must not know
// sockets, flags or commands.
package render
