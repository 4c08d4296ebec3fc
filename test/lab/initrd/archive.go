// SPDX-License-Identifier: Apache-2.0

// Package initrd makes the file systems in memory that kernels of tests begin with, and
// does there what a first program begins with.
package initrd

import (
	"bytes"
	"fmt"
)

// Archive is the archive that a kernel unpacks as its first file system ("newc" of cpio): a
// header of hexadecimal fields, the name and the content, each padded to four bytes.
type Archive struct {
	content bytes.Buffer
	inode   int
}

// The types of an entry, as in the mode of stat(2).
const (
	modeDir  = 0o040000
	modeFile = 0o100000
)

// Dir adds a directory. Directories come before what is in them.
func (a *Archive) Dir(name string) { a.add(name, modeDir|0o755, nil) }

// File adds a file with these permissions.
func (a *Archive) File(name string, permissions int, content []byte) {
	a.add(name, modeFile|permissions, content)
}

func (a *Archive) add(name string, mode int, content []byte) {
	a.inode++
	fmt.Fprintf(&a.content, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	const headerSize = 110
	a.content.WriteString(name + "\x00" + padding(headerSize+len(name)+1))
	a.content.Write(content)
	a.content.WriteString(padding(len(content)))
}

// Bytes ends the archive and returns it. Nothing can be added after it.
func (a *Archive) Bytes() []byte {
	a.inode = -1 // the trailer has inode 0
	a.add("TRAILER!!!", 0, nil)
	return a.content.Bytes()
}

// padding is what follows n bytes up to a multiple of four.
func padding(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }
