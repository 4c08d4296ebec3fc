// SPDX-License-Identifier: Apache-2.0

package steps

// What tests of single steps, and of the commands that errors name, call besides the plans.
var (
	KillCommand    = killCommand
	ConvertCommand = convertCommand
	DeleteSource   = (*Env).deleteSource
	MayWriteDst    = (*Env).mayWriteDst
	MayMirrorToDst = (*Env).mayMirrorToDst
)
