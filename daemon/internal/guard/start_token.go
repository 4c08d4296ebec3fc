// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/atomicfile"
)

// With startTokenMode only root can read the text.
const startTokenMode = 0o600

// IssueStartToken permits starts, despite the owner's guard, of a definition that contains the
// returned text, which cannot be guessed. Other starts stay refused, and other owners' guards stay
// in effect. A new token replaces an earlier one. The token is valid until RevokeStartToken, or
// the next Set or Clear for the domain.
func (d *Dir) IssueStartToken(id, owner string) (text string, err error) {
	path, err := d.path(id)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	text = uuid.NewString()
	if err := atomicfile.Write(path+startTokenSuffix, []byte(text+"\n"+ownerSuffix(owner)+"\n"), startTokenMode); err != nil {
		return "", fmt.Errorf("let instance %s through its guard: %w", id, err)
	}
	return text, nil
}

// RevokeStartToken removes the domain's start token, durably before it returns. A missing token is
// no error.
func (d *Dir) RevokeStartToken(id string) error {
	path, err := d.path(id)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return revokeStartToken(path)
}
