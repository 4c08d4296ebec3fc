// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"errors"
	"os"
)

var errNoKey = errors.New("the passphrase of an encrypted image is missing")

func checkKey(passphrase []byte, images ...Image) error {
	for _, i := range images {
		if i.LUKS && len(passphrase) == 0 {
			return errNoKey
		}
	}
	return nil
}

// hashMS is QEMU's default CPU time, in milliseconds, for hashing a passphrase.
var hashMS int64 = 2000

// fillAsHardToOpen fills an overlay over a LUKS container so that both have similar iteration
// counts. They have one passphrase, and guessing it must not be faster at the overlay. Opening the
// overlay must not take longer either: a guest that is put onto it waits while QEMU hashes. QEMU
// takes a hashing time and no count: the header after the first fill shows how many iterations
// that time gives.
func fillAsHardToOpen(f *os.File, backing Image, fill func(hashMS int64) error) error {
	container, err := open(backing, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer container.close()
	want, err := iterations(container.file, 0)
	if err != nil {
		return &ImageError{backing.Path, err.Error()}
	}
	if err := fill(hashMS); err != nil {
		return err
	}
	h, err := parseHeader(f)
	if err != nil {
		return err
	}
	got, err := iterations(f, h.luksAt)
	if err != nil {
		return err
	}
	if near := int64(want) - int64(got); 10*near <= int64(want) && 10*near >= -int64(want) {
		return nil
	}
	return fill(max(1, hashMS*int64(want)/int64(got)))
}
