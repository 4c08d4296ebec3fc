// SPDX-License-Identifier: Apache-2.0

// Package nbd is a client of NBD servers: it reads which blocks of an export are dirty, and reads
// and writes exports. It implements only the necessary parts of the protocol.
package nbd
