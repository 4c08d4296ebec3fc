// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

func (s *DB) view(ctx context.Context, read func(ledger.Querier) error) error {
	_, err := ledger.View(ctx, s.sqlite.Read, func(q ledger.Querier) (struct{}, error) { return struct{}{}, read(q) })
	return err
}

func gather[T any](each func(ledger.Visit[T]) error) ([]T, error) {
	all := []T{}
	err := each(func(_ string, thing T) (bool, error) {
		all = append(all, thing)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// writeKey returns the key of an object in a list that is filtered by a volume and an instance.
// The key contains the ids of both, so it stays valid if they are renamed.
func writeKey(volume, instance string, ids ...string) string {
	return strings.Join(append([]string{volume, instance}, ids...), "/")
}

func readKey(key, volume, instance string, n int) ([]string, error) {
	if key == "" {
		return make([]string, n), nil
	}
	parts := strings.Split(key, "/")
	if len(parts) != n+2 {
		return nil, api.Errorf(api.CodeInvalidArgument, "the query parameter after is not the next of a page of this list")
	}
	if parts[0] != volume || parts[1] != instance {
		return nil, api.Errorf(api.CodeConflict, "the volume or the instance of this list has another name since it was begun; ask for it again")
	}
	return parts[2:], nil
}
