// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
)

// cpioWriter writes the archive format that the kernel unpacks as its first
// file system ("newc"): a header of hexadecimal fields, the name and the
// content, each padded to four bytes.
type cpioWriter struct {
	w     io.Writer
	inode int
	err   error // the first one; nothing is written after it
}

// The types of a cpio entry, as in the mode of stat(2).
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
)

// add writes one entry. Directories come before what is in them.
func (c *cpioWriter) add(name string, mode int, content []byte) {
	c.inode++
	c.printf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	const headerSize = 110
	c.printf("%s\x00%s", name, padding(headerSize+len(name)+1))
	c.printf("%s%s", content, padding(len(content)))
}

// finish writes the end of the archive and returns the first error of all.
func (c *cpioWriter) finish() error {
	c.inode = -1 // the trailer has inode 0
	c.add("TRAILER!!!", 0, nil)
	if c.err != nil {
		return fmt.Errorf("write cpio archive: %w", c.err)
	}
	return nil
}

func (c *cpioWriter) printf(format string, args ...any) {
	if c.err == nil {
		_, c.err = fmt.Fprintf(c.w, format, args...)
	}
}

// padding is what follows n bytes up to a multiple of four.
func padding(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }
