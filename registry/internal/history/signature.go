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

// NewKey returns a random key for the signatures of marks.
func NewKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // rand.Read never returns an error
	return key
}

func sign(key []byte, mark api.RegistryMark) api.RegistryMark {
	mac := hmac.New(sha256.New, key)
	// No field contains a line break, and their order is fixed, so the text is unambiguous.
	_, _ = fmt.Fprintf(mac, "volferry mark\n%s\n%d\n%d\n%s", mark.RegistryID, mark.Timeline, mark.Seq, mark.Hash)
	mark.Signature = hex.EncodeToString(mac.Sum(nil))
	return mark
}

func isSigned(key []byte, mark api.RegistryMark) bool {
	return hmac.Equal([]byte(sign(key, mark).Signature), []byte(mark.Signature))
}
