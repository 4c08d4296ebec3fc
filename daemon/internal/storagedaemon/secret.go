// SPDX-License-Identifier: Apache-2.0

package storagedaemon

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SecretFile is a file in memory, without a name, that has a secret. It is all that a program gets
// of it: no argument, no environment, no file that anybody else could open.
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
