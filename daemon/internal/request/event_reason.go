// SPDX-License-Identifier: Apache-2.0

package request

import "strings"

// maxReason bounds a reason in bytes: the details of an event may not be large.
const maxReason = 1000

// EventReason returns a reason as the details of an event in the audit trail have it, cut where it is too long.
func EventReason(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}
