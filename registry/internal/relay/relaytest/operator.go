// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"slices"
	"strings"

	"github.com/volferry/volferry/registry/internal/store"
)

// Type executes a command that a move shows to the operator.
func (s *Site) Type(line string) error {
	s.T.Helper()
	ctx, call, words := s.T.Context(), store.Call{}, strings.Fields(line)
	var err error
	switch {
	case len(words) < 4 || words[0] != "volferryctl" || words[1] != "migration":
		s.T.Fatalf("%s: nobody can type that here", line)
	case slices.Contains(words, "--discard-memory"):
		_, err = s.Store.Pauses.Discard(ctx, call, words[3])
	case words[2] == "complete":
		_, err = s.Store.Pauses.Complete(ctx, call, words[3])
	case words[2] == "cancel":
		_, err = s.Store.Pauses.Cancel(ctx, call, words[3], nil)
	default:
		s.T.Fatalf("%s: nobody can type that here", line)
	}
	return err
}
