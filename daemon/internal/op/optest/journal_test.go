// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestJournalConformance(t *testing.T) {
	JournalConformance(t, func(*testing.T) op.Journal { return NewJournal() })
}
