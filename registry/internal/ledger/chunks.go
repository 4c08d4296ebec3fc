// SPDX-License-Identifier: Apache-2.0

package ledger

// Visit is called with each thing of a list, in the order of their keys, until it returns false.
// A key never changes, and things that have to be seen together have the same one.
type Visit[T any] func(key string, thing T) (more bool, err error)

// ChunkRows is how many things of a list are in memory at a time.
const ChunkRows = 64

// InChunks visits the things after a key. Read returns those that come next, with all that have
// their keys, and whether there may be more.
func InChunks[T any](after string, key func(*T) string, read func(after string) (chunk []T, more bool, err error), do Visit[T]) error {
	for {
		chunk, more, err := read(after)
		if err != nil {
			return err
		}
		for i := range chunk {
			after = key(&chunk[i])
			if goOn, err := do(after, chunk[i]); err != nil || !goOn {
				return err
			}
		}
		if !more || len(chunk) == 0 {
			return nil
		}
	}
}
