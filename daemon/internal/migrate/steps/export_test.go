// SPDX-License-Identifier: Apache-2.0

package steps

// The functions under test other than the plans.
var (
	KillCommand    = killCommand
	ConvertCommand = convertCommand
	DeleteSource   = (*Env).deleteSource
	MayWriteDst    = (*Env).mayWriteDst
	MayMirrorToDst = (*Env).mayMirrorToDst
)
