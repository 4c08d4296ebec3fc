// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// QEMU's bounds of the dirty bitmaps of a qcow2 image.
const (
	maxBitmaps          = 65535
	maxBitmapNameBytes  = 1023
	bitmapsExtension    = 24 // bytes
	bitmapEntryBytes    = 24 // before its extra data and its name
	maxBitmapEntryBytes = bitmapEntryBytes + 16 + 1024
)

func (h *Header) bitmapNames(r io.ReaderAt) (names []string, err error) {
	if h.bitmaps == nil {
		return nil, nil
	}
	be := binary.BigEndian
	if len(h.bitmaps) != bitmapsExtension {
		return nil, errors.New("qcow2 header has an impossible list of bitmaps")
	}
	count, length, at := be.Uint32(h.bitmaps), be.Uint64(h.bitmaps[8:]), be.Uint64(h.bitmaps[16:])
	if count == 0 || count > maxBitmaps || length > maxBitmaps*maxBitmapEntryBytes || at > 1<<62 {
		return nil, errors.New("qcow2 header has an impossible list of bitmaps")
	}
	list := io.NewSectionReader(r, int64(at), int64(length))
	for range count {
		var entry [bitmapEntryBytes]byte
		if _, err := io.ReadFull(list, entry[:]); err != nil {
			return nil, fmt.Errorf("read the list of bitmaps: %w", err)
		}
		nameBytes, extraBytes := int64(be.Uint16(entry[18:])), int64(be.Uint32(entry[20:]))
		if nameBytes == 0 || nameBytes > maxBitmapNameBytes || extraBytes > int64(length) {
			return nil, errors.New("the list of bitmaps has an impossible entry")
		}
		// The next entry begins at a multiple of eight.
		rest := make([]byte, (nameBytes+extraBytes+7)&^7-extraBytes)
		if _, err := list.Seek(extraBytes, io.SeekCurrent); err != nil {
			return nil, err
		}
		if n, err := io.ReadFull(list, rest); err != nil && int64(n) < nameBytes {
			return nil, fmt.Errorf("read the list of bitmaps: %w", err)
		}
		names = append(names, strings.ToValidUTF8(string(rest[:nameBytes]), "?"))
	}
	return names, nil
}

// Properties are the properties of a qcow2 image that a guest does not see.
type Properties struct {
	// Bitmaps are the names of the image's dirty bitmaps in the header. While QEMU has the image
	// open for writing, the image may have more or fewer.
	Bitmaps []string
	// Layout lists the image's qemu-img options that images of Volferry do not have.
	Layout []string
}

// ReadProperties reads the header of a qcow2 image, encrypted or not.
func ReadProperties(path string) (Properties, error) {
	o, err := openAny(Image{Path: path, Format: FormatQCOW2}, os.O_RDONLY)
	if err != nil {
		return Properties{}, err
	}
	defer o.close()
	h, err := parseHeader(o.file)
	if err != nil {
		return Properties{}, &ImageError{path, err.Error()}
	}
	names, err := h.bitmapNames(o.file)
	if err != nil {
		return Properties{}, &ImageError{path, err.Error()}
	}
	return Properties{names, h.unusual()}, nil
}

func (h *Header) unusual() (options []string) {
	add := func(is bool, option string) {
		if is {
			options = append(options, option)
		}
	}
	add(h.Version == 2, "compat=0.10")
	add(h.clusterBytes != defaultClusterBytes, fmt.Sprintf("cluster_size=%d", h.clusterBytes))
	add(h.refcountBits != defaultRefcountBits, fmt.Sprintf("refcount_bits=%d", h.refcountBits))
	add(h.ExtendedL2, "extended_l2=on")
	add(h.lazy, "lazy_refcounts=on")
	add(h.compression == compressionZstd, "compression_type=zstd")
	return options
}

// The values of these header fields in images that Volferry makes.
const (
	defaultClusterBytes = 64 << 10
	defaultRefcountBits = 16
	compressionZstd     = 1
)
