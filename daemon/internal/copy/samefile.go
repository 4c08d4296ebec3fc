// SPDX-License-Identifier: Apache-2.0

package copy

import "os"

// sameFile checks that dst, which was opened again by path, is the locked file.
func sameFile(lock *os.File, dst End) error {
	f := fileOf(dst)
	if f == nil || lock == nil {
		return nil
	}
	for _, open := range []*os.File{f.buffered, f.direct} {
		if open == nil {
			continue
		}
		if err := sameOpenFile(lock, open); err != nil {
			return err
		}
	}
	return nil
}

func sameOpenFile(lock, open *os.File) error {
	want, err := lock.Stat()
	if err != nil {
		return err
	}
	got, err := open.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(want, got) {
		return &ImageError{Path: lock.Name(), Reason: "replaced by another while it was opened"}
	}
	return nil
}
