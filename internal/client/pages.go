// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

const (
	// maxPages bounds how long a list goes on: ten million things, or 10 GiB.
	maxPages = 10_000
	// maxListBytes bounds what a list that is kept whole may take of our memory.
	maxListBytes = 256 << 20
)

// FollowPages calls ask for each page of a list, with the cursor of the page, which is empty for
// the first one, until ask returns no next cursor. A list that does not end is an error, and so is
// one whose page cannot be had: without it nothing can be said of what is not in the list.
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

// NextIn returns where the next page of a list begins, by the members of an answer; "" if the
// answer is the last page, or the whole list of a program that does not know pages.
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

// CheckListBytes refuses a list that takes too much memory to be kept whole.
func CheckListBytes(bytes int) error {
	if bytes > maxListBytes {
		return api.Errorf(api.CodeInternal, "the list has more than %d MiB, which is the most that is taken", maxListBytes>>20)
	}
	return nil
}
