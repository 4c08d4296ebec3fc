// SPDX-License-Identifier: Apache-2.0

package history

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// NewKey returns a key to sign marks with.
func NewKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails, it says
	return key
}

// sign returns the mark with its signature under a key.
func sign(key []byte, mark api.RegistryMark) api.RegistryMark {
	mac := hmac.New(sha256.New, key)
	// No part of it has a line break, and all are in a fixed order.
	_, _ = fmt.Fprintf(mac, "volferry mark\n%s\n%d\n%d\n%s", mark.RegistryID, mark.Timeline, mark.Seq, mark.Hash)
	mark.Signature = hex.EncodeToString(mac.Sum(nil))
	return mark
}

// isSigned reports whether the mark has its signature under the key.
func isSigned(key []byte, mark api.RegistryMark) bool {
	return hmac.Equal([]byte(sign(key, mark).Signature), []byte(mark.Signature))
}
