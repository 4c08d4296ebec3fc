// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"errors"
	"os"
)

// errNoKey says that an image is encrypted, and that nothing was given to open it with.
var errNoKey = errors.New("the passphrase of an encrypted image is missing")

// checkKey refuses to run a child for an encrypted image without what opens it.
func checkKey(passphrase []byte, images ...Image) error {
	for _, i := range images {
		if i.LUKS && len(passphrase) == 0 {
			return errNoKey
		}
	}
	return nil
}

// hashMS is for how many milliseconds of a processor QEMU hashes a passphrase where nobody says.
var hashMS int64 = 2000

// fillAsHardToOpen fills an overlay over a container. Who guesses passphrases must not be faster at
// the overlay than at the container, which has the same one. But QEMU does nothing else while it
// hashes, neither does a guest that is put onto the overlay then get on: so it must not take longer
// either. QEMU is told a time, and what that comes to is seen in the header.
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
