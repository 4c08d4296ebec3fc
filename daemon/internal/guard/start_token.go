// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/atomicfile"
)

// A start token is a file beside a domain's guard. The hook lets a start through the
// guards of the owner that its second line names, if the definition that libvirt is
// about to run has the text of its first line in it. The hook has the suffix too, in PASS.
const startTokenSuffix = ".pass"

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

// revokeStartToken removes the start token beside the guard at path. The caller holds mu.
func revokeStartToken(path string) error {
	if _, err := os.Lstat(path + startTokenSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := atomicfile.Remove(path + startTokenSuffix); err != nil {
		return fmt.Errorf("revoke start token: %w", err)
	}
	return nil
}
