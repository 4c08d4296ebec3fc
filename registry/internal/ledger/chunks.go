// SPDX-License-Identifier: Apache-2.0

package ledger

// Visit is called with the objects of a list in the order of their keys, until it returns false.
// Keys never change. Objects that must be read in one snapshot have the same key.
type Visit[T any] func(key string, thing T) (more bool, err error)

// ChunkRows is how many objects of a list are in memory at a time.
const ChunkRows = 64

// InChunks visits the objects with keys greater than last. read returns the next chunk, and
// whether there may be more. A chunk never ends between objects with the same key.
func InChunks[T any](last string, key func(*T) string, read func(last string) (chunk []T, more bool, err error), do Visit[T]) error {
	for {
		chunk, more, err := read(last)
		if err != nil {
			return err
		}
		for i := range chunk {
			last = key(&chunk[i])
			if goOn, err := do(last, chunk[i]); err != nil || !goOn {
				return err
			}
		}
		if !more || len(chunk) == 0 {
			return nil
		}
	}
}
