// SPDX-License-Identifier: Apache-2.0

package request

import "strings"

// maxReason bounds a reason in bytes: the details of an event may not be large.
const maxReason = 1000

// EventReason returns a reason as the details of an event in the audit trail have it, cut where it
// is too long.
func EventReason(reason string) string { return Cut(reason, maxReason) }

// Cut returns the beginning of a text, with at most so many bytes and no half of a character.
func Cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
