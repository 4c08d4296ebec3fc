// SPDX-License-Identifier: Apache-2.0

package migrate

import "github.com/volferry/volferry/daemon/internal/hv"

// direction is one of the two ends that a running guest's overlay may be folded
// into: dst (complete) or src (cancel).
type direction struct {
	job   hv.JobKind
	image func(*Spec) hv.Image
	chain func(*Spec) []hv.Image
	end   position
}

var (
	toDst = direction{job: hv.JobCopy, image: (*Spec).dstImage, chain: (*Spec).dstChain, end: onDst}
	toSrc = direction{job: hv.JobActiveCommit, image: (*Spec).srcImage, chain: (*Spec).srcChain, end: onSrc}
)
