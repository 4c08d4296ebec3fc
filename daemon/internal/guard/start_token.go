// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/atomicfile"
)

// startTokenMode: only root may read the text.
const startTokenMode = 0o600

// IssueStartToken lets one start through the guard that the owner has set: the start of a
// definition with the returned text in it, which nobody can guess. All other starts are
// refused as before, and guards of other owners refuse this start too. It replaces an
// earlier token, and holds until RevokeStartToken or the next Set or Clear of the domain.
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

// RevokeStartToken ends the domain's start token, durably before it returns. No token is no error.
func (d *Dir) RevokeStartToken(id string) error {
	path, err := d.path(id)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return revokeStartToken(path)
}
