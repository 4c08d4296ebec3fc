// SPDX-License-Identifier: Apache-2.0

package api

// UnitFailed is the beginning of the systemd status of a daemon or registry that ended with an
// error. The error follows.
const UnitFailed = "failed: "
