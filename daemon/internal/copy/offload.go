// SPDX-License-Identifier: Apache-2.0

package copy

import "context"

// Offload is how the storage that has both ends copies between them by itself. It is asked for one
// range after the other; cursor, cap and pace are kept here (DESIGN.md of package connector,
// section 5).
type Offload struct {
	// GranularityBytes is what the ranges are multiples of.
	GranularityBytes int64
	// Offered says that the storage may be asked for more than for the range that it was asked for
	// before without an answer.
	Offered bool
	// Ask has n bytes from off on copied, and returns up to where dst has the bytes of src once it
	// is flushed. answered says that the storage has said something, and is at work no more.
	// errors.ErrUnsupported is the answer of a storage that does not copy these.
	Ask func(ctx context.Context, off, n int64) (until int64, answered bool, err error)
	// Refused, if set, is told why the storage does not copy these, so that Volferry does.
	Refused func(error)
}
