// SPDX-License-Identifier: Apache-2.0

package api

// UnitFailed is the prefix of the unit's status after a daemon or registry ended with an error. The
// error follows it.
const UnitFailed = "failed: "
