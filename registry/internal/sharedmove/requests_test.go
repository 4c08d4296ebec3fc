// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func TestTheCopyHostHearsWhatTheOperatorHasAgreedToOverwrite(t *testing.T) {
	for _, agreed := range []bool{false, true} {
		p := &workflow.Pause{Request: api.MigrationTarget{ToPath: "/dev/mapper/lun", PauseAll: true, Overwrite: agreed}}
		for name, body := range map[string]any{"check": checkCopyRequest(p).Body, "copy": copyRequest(p).Body} {
			if in, is := body.(api.CopySaved); !is || in.Overwrite != agreed {
				t.Errorf("agreed %t: the body of %s is %+v", agreed, name, body)
			}
		}
		p = &workflow.Pause{Request: api.MigrationTarget{ToPath: "/dev/mapper/lun", Method: api.MethodLive, Overwrite: agreed}, Live: &workflow.Live{}}
		body := liveRequest(p, workflow.LiveHost{}, workflow.LiveCall{Verb: workflow.LiveMake}).Body
		if in, is := body.(api.LiveMake); !is || in.Overwrite != agreed {
			t.Errorf("live, agreed %t: the body is %+v", agreed, body)
		}
	}
}
