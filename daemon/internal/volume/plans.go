// SPDX-License-Identifier: Apache-2.0

package volume

import "github.com/volferry/volferry/daemon/internal/op"

func (e *env) plans() []op.Plan {
	return []op.Plan{
		{Kind: kindCreate, Steps: []op.Step{
			e.stepRegister(nil),
			e.stepCreateImage(),
			e.stepPublish(),
		}},
		{Kind: kindAdopt, Steps: []op.Step{
			e.stepRegister(e.checkStillThere),
		}},
		{Kind: kindDelete, Commit: "remove_image", Steps: []op.Step{
			e.stepClaim(),
			e.stepRemoveImage(),
			e.stepForget(),
		}},
		{Kind: kindResize, Commit: stepNameGrow, Steps: []op.Step{
			e.stepReserve(),
			e.stepGrow(),
			e.stepRecord(),
		}},
	}
}
