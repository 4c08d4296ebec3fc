// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/migrate/which"
)

func TestTheHintForALogicalVolumeThatIsNotThereActivatesIt(t *testing.T) {
	for path, want := range map[string]string{
		"/dev/vg/lv":       "is its device there? `lvchange -ay -K /dev/vg/lv` activates a logical volume",
		"/var/pool/lv.raw": "is its filesystem mounted?",
	} {
		if got := which.AbsentHint(path); got != want {
			t.Errorf("of %s the hint is %q, want %q", path, got, want)
		}
	}
}
