// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

// makeMarkKey gives a database that has no key for its marks one.
func makeMarkKey(ctx context.Context, db *sqlitedb.DB) error {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails, it says
	if _, err := db.Write.ExecContext(ctx, "UPDATE registry SET mark_key = ? WHERE length(mark_key) = 0", key); err != nil {
		return fmt.Errorf("make the key of marks: %w", err)
	}
	return nil
}

// signed is the mark with the signature of this registry.
func (h *history) signed(mark api.RegistryMark) api.RegistryMark {
	mac := hmac.New(sha256.New, h.key)
	// No part of it has a line break, and all are in a fixed order.
	_, _ = fmt.Fprintf(mac, "volferry mark\n%s\n%d\n%d\n%s", mark.RegistryID, mark.Timeline, mark.Seq, mark.Hash)
	mark.Signature = hex.EncodeToString(mac.Sum(nil))
	return mark
}

// hasSigned says whether this registry has signed the mark.
func (h *history) hasSigned(mark api.RegistryMark) bool {
	return hmac.Equal([]byte(h.signed(mark).Signature), []byte(mark.Signature))
}
