// SPDX-License-Identifier: Apache-2.0

package steps

import "github.com/volferry/volferry/daemon/internal/hv"

// direction is one of the two ends that a running guest's overlay may be folded
// into: dst (complete) or src (cancel).
type direction struct {
	job   hv.JobKind
	image func(*Spec) hv.Image
	chain func(*Spec) []hv.Image
	end   Position
}

var (
	toDst = direction{job: hv.JobCopy, image: (*Spec).DstImage, chain: (*Spec).DstChain, end: OnDst}
	toSrc = direction{job: hv.JobActiveCommit, image: (*Spec).SrcImage, chain: (*Spec).srcChain, end: OnSrc}
)
