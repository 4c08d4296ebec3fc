// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// onShelf puts an instance into a state of the shelf without the workflow.
func onShelf(state api.InstanceState, instance string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(Mutate(t.Context(), s.DB, nobody, "test.shelve", nil, func(ctx context.Context, tx *Tx) (none struct{}, err error) {
			return none, tx.Exec(ctx, "UPDATE instances SET state = ? WHERE id = ?", state, instance)
		}))(t)
	}
}

func shelved(instance string) func(*testing.T, *Store) { return onShelf(api.InstanceShelved, instance) }

func offloaded(instance string) func(*testing.T, *Store) {
	return onShelf(api.InstanceShelvedOffloaded, instance)
}
