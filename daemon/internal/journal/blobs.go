// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/op"
)

// PutBlob stores data under a key, durably, in place of what was there.
func (j *Journal) PutBlob(ctx context.Context, key string, data []byte) error {
	const upsert = `INSERT INTO blobs (key, data) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET data = excluded.data`
	// Not nil: that would be NULL.
	if _, err := j.exec(ctx, upsert, key, append([]byte{}, data...)); err != nil {
		return fmt.Errorf("store blob %s: %w", key, unavailable(err))
	}
	return nil
}

// Blob returns what is stored under a key. op.ErrNotFound if nothing is.
func (j *Journal) Blob(ctx context.Context, key string) ([]byte, error) {
	var data []byte
	err := j.db.Read.QueryRowContext(ctx, `SELECT data FROM blobs WHERE key = ?`, key).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read blob %s: %w", key, op.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", key, unavailable(err))
	}
	return data, nil
}

// DeleteBlobs removes, durably, every blob whose key begins with prefix. It is no error if
// there is none; an empty prefix is an error.
func (j *Journal) DeleteBlobs(ctx context.Context, prefix string) error {
	if prefix == "" {
		return errors.New("delete blobs: the prefix is empty")
	}
	// substr, not LIKE: keys may hold its wildcards.
	const remove = `DELETE FROM blobs WHERE substr(key, 1, length(?1)) = ?1`
	if _, err := j.exec(ctx, remove, prefix); err != nil {
		return fmt.Errorf("delete blobs %s: %w", prefix, unavailable(err))
	}
	return nil
}
