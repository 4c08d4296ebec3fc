// SPDX-License-Identifier: Apache-2.0

// Package nbd reads which blocks of an export are dirty, over a Unix socket: the part of
// the NBD protocol that this takes, and nothing else. It owns no export and starts no
// server, and must not know who does or what a dirty block is read for.
package nbd
