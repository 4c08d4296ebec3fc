// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

const (
	// maxPages limits a list to ten million entries or 10 GiB.
	maxPages     = 10_000
	maxListBytes = 256 << 20
)

// FollowPages calls ask for each page of a list, from the cursor "", until ask returns no next
// cursor. After an error the caller must not conclude that anything is missing from the list.
func FollowPages(ask func(after string) (next string, err error)) error {
	seen := map[string]bool{}
	for after := ""; ; {
		next, err := ask(after)
		if err != nil || next == "" {
			return err
		}
		if seen[next] {
			return api.Errorf(api.CodeInternal, "the list comes back to a page that was read already (%.80q), and has no end; nothing was decided by it", next)
		}
		if len(seen) >= maxPages {
			return api.Errorf(api.CodeInternal, "the list has more than %d pages; nothing was decided by it", maxPages)
		}
		seen[next], after = true, next
	}
}

// NextIn returns the cursor of a list's next page from the members of an answer: "" for the last
// page, or if the program does not divide lists into pages.
func NextIn(members map[string]json.RawMessage) (next string, err error) {
	value, there := members[routes.Next]
	if !there {
		return "", nil
	}
	if err := json.Unmarshal(value, &next); err != nil {
		return "", fmt.Errorf("decode %s: %w", routes.Next, err)
	}
	return next, nil
}

// CheckListBytes refuses a list that takes too much memory.
func CheckListBytes(bytes int) error {
	if bytes > maxListBytes {
		return api.Errorf(api.CodeInternal, "the list has more than %d MiB, which is the most that is taken", maxListBytes>>20)
	}
	return nil
}
