// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/op"
)

// PutBlob stores data under a key, durably; it replaces the key's earlier data.
func (j *Journal) PutBlob(ctx context.Context, key string, data []byte) error {
	const upsert = `INSERT INTO blobs (key, data) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET data = excluded.data`
	// A nil slice would be stored as NULL.
	if _, err := j.exec(ctx, upsert, key, append([]byte{}, data...)); err != nil {
		return fmt.Errorf("store blob %s: %w", key, unavailable(err))
	}
	return nil
}

// Blob returns the data stored under a key, or op.ErrNotFound.
func (j *Journal) Blob(ctx context.Context, key string) ([]byte, error) {
	scan := func(rows *sql.Rows) (data []byte, err error) { return data, rows.Scan(&data) }
	found, err := list(ctx, j.reads, `SELECT data FROM blobs WHERE key = ?`, []any{key}, scan)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", key, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("read blob %s: %w", key, op.ErrNotFound)
	}
	return found[0], nil
}

// DeleteBlobs durably removes every blob with a key that begins with prefix. It is no error if
// there is none. An empty prefix is an error.
func (j *Journal) DeleteBlobs(ctx context.Context, prefix string) error {
	if prefix == "" {
		return errors.New("delete blobs: the prefix is empty")
	}
	// substr, not LIKE: a key may contain LIKE's wildcards.
	const remove = `DELETE FROM blobs WHERE substr(key, 1, length(?1)) = ?1`
	if _, err := j.exec(ctx, remove, prefix); err != nil {
		return fmt.Errorf("delete blobs %s: %w", prefix, unavailable(err))
	}
	return nil
}

// Blobs returns, by key, the data of every key that begins with prefix.
func (j *Journal) Blobs(ctx context.Context, prefix string) (map[string][]byte, error) {
	type blob struct {
		key  string
		data []byte
	}
	scan := func(rows *sql.Rows) (b blob, err error) { return b, rows.Scan(&b.key, &b.data) }
	found, err := list(ctx, j.reads, `SELECT key, data FROM blobs WHERE substr(key, 1, length(?1)) = ?1`, []any{prefix}, scan)
	if err != nil {
		return nil, fmt.Errorf("read blobs %s: %w", prefix, unavailable(err))
	}
	all := make(map[string][]byte, len(found))
	for _, b := range found {
		all[b.key] = b.data
	}
	return all, nil
}
