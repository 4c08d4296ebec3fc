// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Constants of the LUKS format; QEMU reads version 1.
const (
	formatLUKS = "luks" // QEMU's name of a container without qcow2

	luksMagic            = "LUKS\xba\xbe"
	luksVersion          = 1
	luksVersionAt        = 6
	luksPayloadAt        = 104
	luksHeaderBytes      = 592
	luksSectorBytes      = 512
	luksFirstKeyMaterial = 4096 // the earliest place of the first key; the payload follows

	luksSlotsAt    = 208
	luksSlots      = 8
	luksSlotBytes  = 48
	luksSlotActive = 0x00ac71f3
)

// payloadOffset reads the start of a LUKS container's payload from the header, which the guest
// cannot write.
func payloadOffset(r io.ReaderAt, containerBytes int64) (int64, error) {
	var header [luksHeaderBytes]byte
	switch _, err := r.ReadAt(header[:], 0); {
	case errors.Is(err, io.EOF):
		return 0, errors.New("too short for a LUKS header")
	case err != nil:
		return 0, fmt.Errorf("read LUKS header: %w", err)
	case !bytes.HasPrefix(header[:], []byte(luksMagic)):
		return 0, errors.New("no LUKS header")
	}
	if v := binary.BigEndian.Uint16(header[luksVersionAt:]); v != luksVersion {
		return 0, fmt.Errorf("LUKS version %d is none that QEMU opens", v)
	}
	offset := int64(binary.BigEndian.Uint32(header[luksPayloadAt:])) * luksSectorBytes
	switch {
	case offset <= luksFirstKeyMaterial || offset >= containerBytes:
		return 0, fmt.Errorf("LUKS header says that the payload begins at byte %d of %d", offset, containerBytes)
	case containerBytes%luksSectorBytes != 0:
		return 0, fmt.Errorf("its size of %d bytes is no multiple of %d", containerBytes, luksSectorBytes)
	}
	return offset, nil
}

func iterations(r io.ReaderAt, at int64) (least uint32, err error) {
	var header [luksHeaderBytes]byte
	if _, err := r.ReadAt(header[:], at); err != nil {
		return 0, fmt.Errorf("read LUKS header: %w", err)
	}
	if !bytes.HasPrefix(header[:], []byte(luksMagic)) {
		return 0, errors.New("no LUKS header")
	}
	for slot := header[luksSlotsAt : luksSlotsAt+luksSlots*luksSlotBytes]; len(slot) > 0; slot = slot[luksSlotBytes:] {
		if n := binary.BigEndian.Uint32(slot[4:]); binary.BigEndian.Uint32(slot) == luksSlotActive && (least == 0 || n < least) {
			least = n
		}
	}
	if least == 0 {
		return 0, errors.New("LUKS header has no key")
	}
	return least, nil
}

// On a busy processor QEMU may be unable to measure its hashing speed; the next try may succeed.
const (
	notTimed   = "accurate CPU usage"
	timeTrials = 5
)

func untilTimed(encrypt func() error) (err error) {
	for range timeTrials {
		var failed *CommandError
		if err = encrypt(); !errors.As(err, &failed) || !strings.Contains(failed.Stderr, notTimed) {
			return err
		}
	}
	return err
}

const keyID = "key"

func secretObject(file string) string { return "secret,id=" + keyID + ",file=" + file }
