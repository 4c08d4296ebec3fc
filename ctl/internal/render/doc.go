// SPDX-License-Identifier: Apache-2.0

// Package render turns what volferryctl knows into text: tables that fit the
// terminal, records of one thing, and the progress of a migration. A terminal obeys
// nothing of what it was given to show (Cell, Text). It writes to
// the writers it is given and knows nothing of sockets, flags or commands.
package render
