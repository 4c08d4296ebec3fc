// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Mark writes a text to the beginning of a raw image, and zeros up to the end of the first block.
// It writes durably and past the page cache, because other hosts with the image read the text.
func (s Storage) Mark(_ context.Context, path, text string) error {
	block, err := markBlock(text)
	if err != nil {
		return err
	}
	f, err := s.host().openDirect(path, os.O_RDWR)
	if err != nil {
		return noImage(err)
	}
	_, err = f.WriteAt(block, 0)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		err = noSpace(fmt.Errorf("mark %s: %w", path, err))
	}
	return errors.Join(err, f.Close())
}

// Marked reports whether an image begins with a text that Mark has written. It reads the storage,
// not this host's cache. It returns ErrAbsent if there is nothing at the path.
func (s Storage) Marked(_ context.Context, path, text string) (bool, error) {
	want, err := markBlock(text)
	if err != nil {
		return false, err
	}
	f, err := s.host().openDirect(path, os.O_RDONLY)
	if err != nil {
		return false, noImage(err)
	}
	defer func() { _ = f.Close() }()
	got := alignedBlock()
	n, err := f.ReadAt(got, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the beginning of %s: %w", path, err)
	}
	return bytes.Equal(got[:n], want), nil
}

func markBlock(text string) ([]byte, error) {
	if len(text) > MaxAlignBytes {
		return nil, fmt.Errorf("a mark of %d bytes is longer than a block", len(text))
	}
	block := alignedBlock()
	copy(block, text)
	return block, nil
}

func (h host) openDirect(path string, flags int) (*os.File, error) {
	f, err := h.Files.Open(path, flags|unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) {
		f, err = h.Files.Open(path, flags)
	}
	return f, err
}
