// SPDX-License-Identifier: Apache-2.0

// Package nbd is a client of NBD servers: it reads which blocks of an export
// are dirty, and reads and writes exports. It has the part of the protocol that this takes, and
// nothing else. It owns no export and starts no server, and must not know who does or what the
// bytes are for.
package nbd
