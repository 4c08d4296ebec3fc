// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/volferry/volferry/internal/shell"
)

// Constants of the qcow2 format (docs/interop/qcow2.txt of QEMU).
const (
	qcow2Magic            = 0x514649fb // "QFI\xfb"
	qcow2HeaderBytesV2    = 72
	qcow2HeaderBytesV3    = 104
	qcow2MinCluster       = 9
	qcow2MaxCluster       = 21
	qcow2MaxRefcountOrder = 6
	qcow2MaxBacking       = 1023
	qcow2MaxL1Entries     = 32 << 20 / 8
	qcow2L1OffsetMask     = 0x00fffffffffffe00
	qcow2NoCrypt          = 0
	qcow2LUKS             = 2
	qcow2CompressionAt    = 104 // a byte, if the header is long enough

	extensionEnd           = 0
	extensionBackingFormat = 0xe2792aca
	extensionDataFile      = 0x44415441
	extensionLUKS          = 0x0537be77
	extensionBitmaps       = 0x23852875

	incompatibleDirty       = 1 << 0
	incompatibleCorrupt     = 1 << 1
	incompatibleDataFile    = 1 << 2
	incompatibleCompression = 1 << 3
	incompatibleExtendedL2  = 1 << 4
	incompatibleKnown       = incompatibleDirty | incompatibleCorrupt | incompatibleDataFile |
		incompatibleCompression | incompatibleExtendedL2

	compatibleLazyRefcounts = 1 << 0
	autoclearBitmaps        = 1 << 0
)

// Header has the needed fields of a qcow2 header. An external data file, other encryption than
// LUKS, the mark of a corrupt image, and unknown features are errors.
type Header struct {
	Version       int
	SizeBytes     int64
	BackingFile   string
	BackingFormat string
	Snapshots     int
	ExtendedL2    bool
	Encrypted     bool // as LUKS

	clusterBytes int64
	refcountBits int
	lazy         bool // its refcounts are written late
	compression  byte
	bitmaps      []byte // the header extension with the place of the list of dirty bitmaps
	luksAt       int64
	l1Offset     int64
	l1Entries    int
}

func (h *Header) whole(path string) error {
	if h.Snapshots > 0 {
		return &ImageError{path, fmt.Sprintf("has %d internal snapshots, which a copy would lose; while no guest has it, `%s` lists them and `%s` deletes one", h.Snapshots, shell.Line("qemu-img", "snapshot", "-l", "--", path), shell.Line("qemu-img", "snapshot", "-d", "NAME", "--", path))}
	}
	return nil
}

func parseHeader(r io.ReaderAt) (*Header, error) {
	var fixed [qcow2HeaderBytesV3]byte
	n, err := r.ReadAt(fixed[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read qcow2 header: %w", err)
	}
	if n < len(fixed) {
		return nil, errors.New("too short for a qcow2 header")
	}
	be := binary.BigEndian
	if be.Uint32(fixed[0:]) != qcow2Magic {
		return nil, errors.New("no qcow2 header")
	}
	h := &Header{Version: int(be.Uint32(fixed[4:])), Snapshots: int(be.Uint32(fixed[60:]))}
	headerBytes := uint32(qcow2HeaderBytesV2)
	switch h.Version {
	case 2:
		h.refcountBits = 16
	case 3:
		headerBytes = be.Uint32(fixed[100:])
		order := be.Uint32(fixed[96:])
		if order > qcow2MaxRefcountOrder {
			return nil, fmt.Errorf("qcow2 header has refcount order %d", order)
		}
		h.refcountBits = 1 << order
		if err := h.features(be.Uint64(fixed[72:])); err != nil {
			return nil, err
		}
		h.lazy = be.Uint64(fixed[80:])&compatibleLazyRefcounts != 0
	default:
		return nil, fmt.Errorf("qcow2 version %d is not supported", h.Version)
	}
	clusterBits := be.Uint32(fixed[20:])
	if clusterBits < qcow2MinCluster || clusterBits > qcow2MaxCluster {
		return nil, fmt.Errorf("qcow2 header has cluster bits %d", clusterBits)
	}
	h.clusterBytes = 1 << clusterBits
	if h.Version == 3 && (headerBytes < qcow2HeaderBytesV3 || headerBytes%8 != 0 || headerBytes > 1<<clusterBits) {
		return nil, fmt.Errorf("qcow2 header has length %d", headerBytes)
	}
	switch be.Uint32(fixed[32:]) {
	case qcow2NoCrypt:
	case qcow2LUKS:
		h.Encrypted = true
	default:
		return nil, errors.New("the image is encrypted, and not as LUKS")
	}
	if err := h.geometry(be.Uint64(fixed[24:]), be.Uint64(fixed[40:]), be.Uint32(fixed[36:])); err != nil {
		return nil, err
	}
	first := make([]byte, 1<<clusterBits)
	n, err = r.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read first qcow2 cluster: %w", err)
	}
	if headerBytes > qcow2CompressionAt && n > qcow2CompressionAt {
		h.compression = first[qcow2CompressionAt]
	}
	if err := h.names(first[:n], headerBytes, be.Uint64(fixed[8:]), be.Uint32(fixed[16:])); err != nil {
		return nil, err
	}
	if h.Version == 2 || be.Uint64(fixed[88:])&autoclearBitmaps == 0 {
		h.bitmaps = nil // a program without bitmap support has written to the image: QEMU drops them
	}
	return h, nil
}

func (h *Header) features(incompatible uint64) error {
	switch {
	case incompatible&incompatibleDataFile != 0:
		return errors.New("has an external data file")
	case incompatible&incompatibleCorrupt != 0:
		return errors.New("is marked corrupt")
	case incompatible&^uint64(incompatibleKnown) != 0:
		return fmt.Errorf("has unknown incompatible features %#x", incompatible&^uint64(incompatibleKnown))
	}
	h.ExtendedL2 = incompatible&incompatibleExtendedL2 != 0
	return nil
}

func (h *Header) geometry(size, l1Offset uint64, l1Entries uint32) error {
	if size > math.MaxInt64 {
		return fmt.Errorf("qcow2 header has size %d", size)
	}
	if l1Offset > math.MaxInt64 || l1Entries > qcow2MaxL1Entries {
		return errors.New("qcow2 header has an impossible L1 table")
	}
	h.SizeBytes, h.l1Offset, h.l1Entries = int64(size), int64(l1Offset), int(l1Entries)
	return nil
}

func (h *Header) names(first []byte, at uint32, backingOffset uint64, backingBytes uint32) error {
	end := uint64(len(first))
	if backingOffset != 0 && backingBytes != 0 {
		if backingBytes > qcow2MaxBacking || backingOffset < uint64(at) || backingOffset > end || uint64(backingBytes) > end-backingOffset {
			return errors.New("qcow2 header has an impossible backing file name")
		}
		h.BackingFile = string(first[backingOffset : backingOffset+uint64(backingBytes)])
		if strings.ContainsRune(h.BackingFile, 0) {
			return errors.New("qcow2 header has a zero byte in its backing file name")
		}
		end = backingOffset
	}
	for off := uint64(at); end-min(off, end) >= 8; {
		kind := binary.BigEndian.Uint32(first[off:])
		length := uint64(binary.BigEndian.Uint32(first[off+4:]))
		off += 8
		if kind == extensionEnd {
			return nil
		}
		if length > end-off {
			return errors.New("qcow2 header extension reaches beyond the header")
		}
		switch kind {
		case extensionDataFile:
			return errors.New("names an external data file")
		case extensionLUKS:
			if length < 16 {
				return errors.New("qcow2 header has an impossible pointer to its encryption")
			}
			h.luksAt = int64(binary.BigEndian.Uint64(first[off:]) & math.MaxInt64)
		case extensionBitmaps:
			h.bitmaps = first[off : off+length]
		case extensionBackingFormat:
			if h.BackingFormat != "" {
				return errors.New("qcow2 header names the backing format twice")
			}
			h.BackingFormat = string(first[off : off+length])
		}
		off += (length + 7) &^ 7
	}
	return nil
}

func (h *Header) empty(r io.ReaderAt) (bool, error) {
	table := make([]byte, h.l1Entries*8)
	if _, err := r.ReadAt(table, h.l1Offset); err != nil {
		return false, fmt.Errorf("read L1 table: %w", err)
	}
	for i := range h.l1Entries {
		if binary.BigEndian.Uint64(table[i*8:])&qcow2L1OffsetMask != 0 {
			return false, nil
		}
	}
	return true, nil
}
