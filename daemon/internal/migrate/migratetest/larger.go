// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/expect"
)

// behindBlocks is how much there is behind the volume where that is the beginning of something
// larger; behindValue is somebody's, in the last block.
const behindBlocks, behindValue = 2, 4711

// largerImages are images that are larger than the volume, by their paths.
type largerImages []string

// create makes one, whose end is somebody's.
func (l *largerImages) create(t *testing.T, fake *hvtest.Fake, path string) {
	t.Helper()
	expect.OK(t, fake.CreateImage(path, hvtest.Raw, Size+behindBlocks*hvtest.BlockSize))
	expect.OK(t, fake.WriteBlock(path, Blocks+behindBlocks-1, behindValue))
	*l = append(*l, path)
}

// bytes is the size of the image at a path, 0 if it is none of these.
func (l largerImages) bytes(path string) int64 {
	if slices.Contains(l, path) {
		return Size + behindBlocks*hvtest.BlockSize
	}
	return 0
}

// untouched returns an error if something was written behind the volume in one of them.
func (l largerImages) untouched(fake *hvtest.Fake) error {
	for _, path := range l {
		content, err := fake.ReadImage(path)
		if err != nil {
			return err
		}
		if content[Blocks] != 0 || content[Blocks+behindBlocks-1] != behindValue {
			return fmt.Errorf("behind the volume %s has %d and %d", path, content[Blocks], content[Blocks+behindBlocks-1])
		}
	}
	return nil
}
