// SPDX-License-Identifier: Apache-2.0

package copy

import "context"

// Offload lets the storage that has both images copy between them, range by range. Cursor, cap and
// pace stay in this package (DESIGN.md of package connector, section 5).
type Offload struct {
	// GranularityBytes: the offset and length of every range are multiples of it.
	GranularityBytes int64
	// Offered: the storage may get new requests. Otherwise it may only get its unanswered range
	// again.
	Offered bool
	// Ask requests a copy of n bytes from off. After a flush, dst equals src from off to until.
	// answered: the storage answered and has stopped. errors.ErrUnsupported: the storage does not
	// copy between these ends.
	Ask func(ctx context.Context, off, n int64) (until int64, answered bool, err error)
	// Refused, if set, gets the reason why Volferry and not the storage copies.
	Refused func(error)
}
