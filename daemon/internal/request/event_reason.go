// SPDX-License-Identifier: Apache-2.0

package request

import "strings"

const maxReason = 1000

// EventReason returns a reason for an audit event's details, which are limited.
func EventReason(reason string) string { return Cut(reason, maxReason) }

// Cut returns at most most bytes of a text, without a partial character.
func Cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
