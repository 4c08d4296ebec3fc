// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Blobs are a journal's blobs in memory. They outlive daemons.
type Blobs struct {
	mu    sync.Mutex
	byKey map[string][]byte
	fails error
}

// SetFails makes all calls fail with err; nil ends that.
func (b *Blobs) SetFails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = err
}

// PutBlob implements move.Blobs.
func (b *Blobs) PutBlob(_ context.Context, key string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	if b.byKey == nil {
		b.byKey = map[string][]byte{}
	}
	b.byKey[key] = slices.Clone(data)
	return nil
}

// Blob implements move.Blobs.
func (b *Blobs) Blob(_ context.Context, key string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return nil, b.fails
	}
	data, found := b.byKey[key]
	if !found {
		return nil, op.ErrNotFound
	}
	return slices.Clone(data), nil
}

// Blobs implements move.Blobs.
func (b *Blobs) Blobs(_ context.Context, prefix string) (map[string][]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := maps.Clone(b.byKey)
	maps.DeleteFunc(found, func(key string, _ []byte) bool { return !strings.HasPrefix(key, prefix) })
	return found, b.fails
}

// DeleteBlobs implements move.Blobs.
func (b *Blobs) DeleteBlobs(_ context.Context, prefix string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails == nil {
		maps.DeleteFunc(b.byKey, func(key string, _ []byte) bool { return strings.HasPrefix(key, prefix) })
	}
	return b.fails
}

// Keys returns all keys.
func (b *Blobs) Keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.byKey))
}
