// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"
)

func TestAMoveUnderAForeignSnapshotNamesTheMergeAndNoCancel(t *testing.T) {
	const merge = "virsh suspend web" + CureSeparator + "virsh blockcommit web vda --base /overlays/m.qcow2 --active --pivot --wait" + CureSeparator + "volferryctl instance unpause web"
	why := Errorf(CodeChainChanged, "a snapshot is over the overlay").With(DetailCure, merge)
	m := Migration{ID: "m", VolumeName: "web-vda", SrcAttachmentID: "a", DstAttachmentID: "b", State: MigrationCopied, Error: why}
	if again, back := m.Cures(); again != merge+CureSeparator+m.CompleteCommand() || back != "" {
		t.Errorf("copied: again %q, back %q", again, back)
	}
	m.State = MigrationCancelling
	if again, _ := m.Cures(); !strings.HasPrefix(again, merge) || strings.Contains(again, "A definition that was put back") {
		t.Errorf("cancelling: %q", again)
	}
	m.State, m.Error = MigrationCopied, Errorf(CodeChainChanged, "the source was written")
	if again, back := m.Cures(); !strings.Contains(again, "volume which") || back == "" {
		t.Errorf("another change: again %q, back %q", again, back)
	}
}
