// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/volferry/volferry/internal/atomicfile"
)

const frameHeadBytes = 12

// FileCursor is a Cursor in a file. The first Append creates the file; the owner of the copy
// removes it.
type FileCursor struct {
	path string
	file *os.File
}

// NewFileCursor returns the cursor at path. The caller must Close it.
func NewFileCursor(path string) *FileCursor { return &FileCursor{path: path} }

// Load reads the complete records, and truncates a torn record after a crash.
func (c *FileCursor) Load() ([]byte, error) {
	b, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load cursor: %w", err)
	}
	var log []byte
	whole := 0
	for rest := b; len(rest) >= frameHeadBytes; rest = b[whole:] {
		n := uint64(binary.BigEndian.Uint32(rest))
		if n > uint64(len(rest)-frameHeadBytes) {
			break
		}
		record := rest[frameHeadBytes : frameHeadBytes+n]
		if xxh3.Hash(record) != binary.BigEndian.Uint64(rest[4:]) {
			break
		}
		log = append(log, record...)
		whole += frameHeadBytes + int(n)
	}
	if whole < len(b) {
		if err := os.Truncate(c.path, int64(whole)); err != nil {
			return nil, fmt.Errorf("cut torn cursor: %w", err)
		}
	}
	return log, nil
}

// Append writes a record and waits until it is on stable storage. On a full disk it uses the
// reserve of the directory's files; see atomicfile.UseReserve.
func (c *FileCursor) Append(record []byte) error {
	if err := c.open(); err != nil {
		return fmt.Errorf("open cursor: %w", err)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(record)))
	frame = binary.BigEndian.AppendUint64(frame, xxh3.Hash(record))
	frame = append(frame, record...)
	st, err := c.file.Stat()
	if err != nil {
		return fmt.Errorf("look at cursor: %w", err)
	}
	err = atomicfile.UseReserve(c.path, atomicfile.IsFull, func() error {
		_, err := c.file.Write(frame)
		if err == nil {
			err = c.file.Sync()
		}
		if err != nil { // a part may be written, or all
			return errors.Join(err, c.file.Truncate(st.Size()))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("append to cursor: %w", err)
	}
	return nil
}

func (c *FileCursor) open() error {
	if c.file != nil {
		return nil
	}
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(c.path))
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	c.file = f
	return nil
}

// Close does not remove the file.
func (c *FileCursor) Close() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	return err
}
