// SPDX-License-Identifier: Apache-2.0

package attach

import "github.com/volferry/volferry/daemon/internal/op"

// plans returns the plans of all op kinds of attachments.
func (e *env) plans() []op.Plan {
	return []op.Plan{
		{Kind: kindAttach, Commit: stepNameComplete, Steps: []op.Step{
			e.stepReserve(),
			e.stepClaim(),
			e.stepConnect(),
			e.stepAttachConfig(),
			e.stepAttachLive(),
			e.stepVerify(),
			e.stepComplete(),
		}},
		{Kind: kindDetach, Commit: stepNameDetachLive, Steps: []op.Step{
			e.stepBegin(),
			e.stepRemember(),
			e.stepDetachConfig(),
			e.stepDetachLive(),
			e.stepDisconnect(),
			e.stepRelease(),
		}},
		{Kind: kindDelete, Steps: []op.Step{
			e.stepAbsent(),
			e.stepDisconnect(),
			e.stepRelease(),
		}},
		{Kind: kindRelease, Steps: []op.Step{
			e.stepReleaseLate(),
		}},
		{Kind: kindRestore, Steps: []op.Step{
			e.stepAttachLive(),
		}},
		{Kind: kindAttachRoot, Commit: stepNameComplete, Steps: []op.Step{
			e.stepReserve(),
			e.stepClaim(),
			e.stepGuard(),
			e.stepConnect(),
			e.stepAttachConfig(),
			e.stepVerifyRoot(),
			e.stepComplete(),
			e.stepUnguard(),
		}},
		{Kind: kindDetachRoot, Commit: stepNameStayOff, Steps: []op.Step{
			e.stepBegin(),
			e.stepGuard(),
			e.stepRemember(),
			e.stepDetachConfig(),
			e.stepStayOff(),
			e.stepDisconnect(),
			e.stepRelease(),
		}},
		{Kind: kindDeleteRoot, Steps: []op.Step{
			e.stepAbsent(),
			e.stepGuard(),
			e.stepDisconnect(),
			e.stepRelease(),
		}},
	}
}
