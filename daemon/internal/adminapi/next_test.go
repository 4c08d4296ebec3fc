// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"encoding/json"
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func TestAnOpThatNeedsAnOperatorNamesTheCallThatGoesOnWithIt(t *testing.T) {
	const about = `{"volume_name":"db","instance_name":"web","size_bytes":4096,"spec":{"MigrationID":"m","migration_id":"m"}}`
	for kind, want := range map[string]string{
		"migration_delete_source": "volferryctl migration delete-source m --yes",
		"migration_copy":          "volferryctl migration show m",
		"attachment_attach_root":  "volferryctl volume attach db web",
		"attachment_release":      "volferryctl volume detach db web",
		"instance_unshelve":       "volferryctl instance unshelve web",
		"instance_save":           "", // the registry requests it
		"volume_resize":           "volferryctl volume resize db --size 4096",
		"volume_delete":           "volferryctl volume delete db --force",
		"volume_adopt":            "",
	} {
		st := op.Status{Op: op.Op{ID: "a", Kind: kind, Group: "m", Input: json.RawMessage(about)}, State: op.StateNeedsOperator, Failure: &op.Failure{Code: "internal", Message: "a riddle"}}
		if got := render(&st).Next; got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
		st.Failure.Details = map[string]any{api.DetailCure: "mend it"}
		if got := render(&st).Next; got != "mend it" {
			t.Errorf("%s whose error knows more: %q", kind, got)
		}
		st.State = op.StateRunning
		if got := render(&st).Next; got != "" {
			t.Errorf("%s that runs: %q", kind, got)
		}
	}
}
