// SPDX-License-Identifier: Apache-2.0

package storagedaemon

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SecretFile returns an unnamed file in memory with a secret. A program gets the secret only
// through this file, not through an argument or the environment.
func SecretFile(secret []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("secret", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for a secret: %w", err)
	}
	f := os.NewFile(uintptr(fd), "the secret")
	if _, err := f.Write(secret); err != nil {
		return nil, errors.Join(fmt.Errorf("write a secret: %w", err), f.Close())
	}
	return f, nil
}
