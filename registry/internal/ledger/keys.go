// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
)

const keysQuery = "SELECT key FROM idempotency WHERE key IN (SELECT value FROM json_each(?))"

// lookUpKeys finds out which keys of a batch have answers, with one query: hardly any has,
// and a query for each is a tenth of what a change costs.
func (t *Tx) lookUpKeys(ctx context.Context, keys []string) error {
	if len(keys) < 2 {
		return nil // its own query costs less
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return fmt.Errorf("encode idempotency keys: %w", err)
	}
	found, err := QueryAll(ctx, t, ScanString, keysQuery, string(list))
	if err != nil {
		return fmt.Errorf("look up idempotency keys: %w", err)
	}
	t.answers = make(map[string]bool, len(keys))
	for _, key := range keys {
		t.answers[key] = false
	}
	for _, key := range found {
		t.answers[key] = true
	}
	return nil
}

// hasNoAnswer says that it is known that there is no answer under the key.
func (t *Tx) hasNoAnswer(key string) bool {
	may, known := t.answers[key]
	return known && !may
}

// noteAnswer notes that there may be an answer under the key from now on.
func (t *Tx) noteAnswer(key string) {
	if t.answers != nil {
		t.answers[key] = true
	}
}
