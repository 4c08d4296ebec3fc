// SPDX-License-Identifier: Apache-2.0

package attach

import "github.com/volferry/volferry/daemon/internal/op"

func (e *env) plans() []op.Plan {
	reserve, connect, attach, detach := reserveSteps{e}, connectSteps{e}, attachSteps{e}, detachSteps{e}
	release, root := releaseSteps{e}, rootSteps{e}
	return []op.Plan{
		{Kind: kindAttach, Commit: stepNameComplete, Steps: []op.Step{
			reserve.stepReserve(),
			reserve.stepClaim(),
			connect.stepConnect(),
			attach.stepAttachConfig(),
			attach.stepAttachLive(),
			attach.stepVerify(),
			reserve.stepComplete(),
		}},
		{Kind: kindDetach, Commit: stepNameDetachLive, Steps: []op.Step{
			detach.stepBegin(),
			detach.stepRemember(),
			detach.stepDetachConfig(),
			detach.stepDetachLive(),
			connect.stepDisconnect(),
			release.stepRelease(),
		}},
		{Kind: kindDelete, Steps: []op.Step{
			release.stepAbsent(),
			connect.stepDisconnect(),
			release.stepRelease(),
		}},
		{Kind: kindRelease, Steps: []op.Step{
			release.stepReleaseLate(),
		}},
		{Kind: kindRestore, Steps: []op.Step{
			attach.stepAttachLive(),
		}},
		{Kind: kindAttachRoot, Commit: stepNameComplete, Steps: []op.Step{
			reserve.stepReserve(),
			reserve.stepClaim(),
			root.stepGuard(),
			connect.stepConnect(),
			attach.stepAttachConfig(),
			root.stepVerifyRoot(),
			reserve.stepComplete(),
			root.stepUnguard(),
		}},
		{Kind: kindDetachRoot, Commit: stepNameStayOff, Steps: []op.Step{
			detach.stepBegin(),
			root.stepGuard(),
			detach.stepRemember(),
			detach.stepDetachConfig(),
			root.stepStayOff(),
			connect.stepDisconnect(),
			release.stepRelease(),
		}},
		{Kind: kindDeleteRoot, Steps: []op.Step{
			release.stepAbsent(),
			root.stepGuard(),
			connect.stepDisconnect(),
			release.stepRelease(),
		}},
	}
}
