// SPDX-License-Identifier: Apache-2.0

package request

import "strings"

// maxReason bounds a reason in bytes, because the details of an event are limited.
const maxReason = 1000

// EventReason returns a reason for the details of an audit event, truncated if necessary.
func EventReason(reason string) string { return Cut(reason, maxReason) }

// Cut returns the beginning of a text: at most most bytes, and no partial character.
func Cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
