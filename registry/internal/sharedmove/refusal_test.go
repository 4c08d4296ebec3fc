// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func TestARefusalSaysOnceWhatCouldNotBeDone(t *testing.T) {
	g := workflow.PauseInstance{Name: "g4"}
	g.Host.Name = "hv1"
	for message, want := range map[string]string{
		"no space":                             "cannot save instance g4 on host hv1: no space",
		"cannot save instance g4: no space":    "cannot save instance g4 on host hv1: no space",
		"cannot save instance g44: no space":   "cannot save instance g4 on host hv1: cannot save instance g44: no space",
		"cannot restore instance g4: no space": "cannot save instance g4 on host hv1: cannot restore instance g4: no space",
	} {
		failed := api.Errorf(api.CodeNoSpace, "%s", message).With("path", "/ram")
		got := refusal(g, "save", failed)
		if got.Message != want || got.Code != api.CodeNoSpace || got.Details["path"] != "/ram" {
			t.Errorf("of %q: %q, %s, %v; want %q", message, got.Message, got.Code, got.Details, want)
		}
		if failed.Message != message {
			t.Errorf("the daemon's own message was changed: %q", failed.Message)
		}
	}
}
