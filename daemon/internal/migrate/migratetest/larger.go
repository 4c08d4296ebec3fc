// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/expect"
)

// behindBlocks is the number of blocks after a volume in a larger image. behindValue is foreign
// data in the last block.
const behindBlocks, behindValue = 2, 4711

type largerImages []string

func (l *largerImages) create(t *testing.T, fake *hvtest.Fake, path string) {
	t.Helper()
	expect.OK(t, fake.CreateImage(path, hvtest.Raw, Size+behindBlocks*hvtest.BlockSize))
	expect.OK(t, fake.WriteBlock(path, Blocks+behindBlocks-1, behindValue))
	*l = append(*l, path)
}

func (l largerImages) bytes(path string) int64 {
	if slices.Contains(l, path) {
		return Size + behindBlocks*hvtest.BlockSize
	}
	return 0
}

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
