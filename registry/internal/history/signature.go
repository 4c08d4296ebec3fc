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

// Signed is the mark with the signature of this registry.
func (h *History) Signed(mark api.RegistryMark) api.RegistryMark {
	mac := hmac.New(sha256.New, h.key)
	// No part of it has a line break, and all are in a fixed order.
	_, _ = fmt.Fprintf(mac, "volferry mark\n%s\n%d\n%d\n%s", mark.RegistryID, mark.Timeline, mark.Seq, mark.Hash)
	mark.Signature = hex.EncodeToString(mac.Sum(nil))
	return mark
}

// HasSigned says whether this registry has signed the mark.
func (h *History) HasSigned(mark api.RegistryMark) bool {
	return hmac.Equal([]byte(h.Signed(mark).Signature), []byte(mark.Signature))
}
