// SPDX-License-Identifier: Apache-2.0

package request

import "strings"

const maxReason = 1000

// EventReason returns a reason cut to the length that an audit event's details permit.
func EventReason(reason string) string { return Cut(reason, maxReason) }

// Cut returns the beginning of a text: at most this number of bytes, without a partial character.
func Cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
