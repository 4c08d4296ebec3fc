// SPDX-License-Identifier: Apache-2.0

package api

// UnitFailed begins the unit's status after a daemon or registry ended with an error, which
// follows.
const UnitFailed = "failed: "
