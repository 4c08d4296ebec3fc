// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

// ReadBacking returns the backing file of a qcow2 image and its format from the header. Both are
// empty if there is no backing file, or the image is not qcow2. It also reads images that the
// function open refuses, since a guest may use them, and follows links, as QEMU does.
func ReadBacking(path string) (file, format string, err error) {
	f, err := openfile.Anywhere().Open(path, os.O_RDONLY)
	if no := (*openfile.Error)(nil); errors.As(err, &no) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	defer func() { _ = f.Close() }()
	var fixed [qcow2HeaderBytesV3]byte
	n, err := f.ReadAt(fixed[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", "", fmt.Errorf("read the header of %s: %w", path, err)
	}
	be := binary.BigEndian
	offset, length := be.Uint64(fixed[8:]), be.Uint32(fixed[16:])
	clusterBits := be.Uint32(fixed[20:])
	if n < qcow2HeaderBytesV2 || be.Uint32(fixed[:]) != qcow2Magic || offset == 0 || length == 0 {
		return "", "", nil
	}
	if length > qcow2MaxBacking || clusterBits < qcow2MinCluster || clusterBits > qcow2MaxCluster || offset > 1<<clusterBits {
		return "", "", nil // QEMU does not open such an image
	}
	first := make([]byte, offset+uint64(length))
	if _, err := f.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", "", fmt.Errorf("read the header of %s: %w", path, err)
	}
	return string(first[offset:]), backingFormat(first[:offset], be.Uint32(fixed[4:]), be.Uint32(fixed[100:])), nil
}

// ClusterBytes returns the cluster size of a qcow2 image.
func ClusterBytes(i Image) (int64, error) {
	o, err := openAny(i, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer o.close()
	h, err := parseHeader(o.file)
	if err != nil {
		return 0, &ImageError{i.Path, err.Error()}
	}
	return h.clusterBytes, nil
}

func backingFormat(header []byte, version, headerBytes uint32) string {
	at := uint64(qcow2HeaderBytesV2)
	if version > 2 {
		at = uint64(headerBytes)
	}
	for at+8 <= uint64(len(header)) {
		kind, length := binary.BigEndian.Uint32(header[at:]), uint64(binary.BigEndian.Uint32(header[at+4:]))
		at += 8
		if kind == extensionEnd || length > uint64(len(header))-at {
			return ""
		}
		if kind == extensionBackingFormat {
			return string(header[at : at+length])
		}
		at += (length + 7) &^ 7
	}
	return ""
}
