// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
)

const keysQuery = "SELECT key FROM idempotency WHERE key IN (SELECT value FROM json_each(?))"

// lookUpKeys finds, with one query, which keys of a batch have answers. Hardly any key has one,
// and a query for each key would cost a tenth of a change.
func (t *Tx) lookUpKeys(ctx context.Context, keys []string) error {
	if len(keys) < 2 {
		return nil // the change's own query is cheaper
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

func (t *Tx) hasNoAnswer(key string) bool {
	may, known := t.answers[key]
	return known && !may
}

// noteAnswer records that there may now be an answer under the key.
func (t *Tx) noteAnswer(key string) {
	if t.answers != nil {
		t.answers[key] = true
	}
}
