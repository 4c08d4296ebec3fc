// SPDX-License-Identifier: Apache-2.0

package steps

// What tests of single steps call besides the plans.
var (
	DeleteSource   = (*Env).deleteSource
	MayWriteDst    = (*Env).mayWriteDst
	MayMirrorToDst = (*Env).mayMirrorToDst
)
