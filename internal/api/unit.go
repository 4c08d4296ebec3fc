// SPDX-License-Identifier: Apache-2.0

package api

// UnitFailed begins the status of the unit of a daemon or registry that has ended by an error, as
// systemctl shows it; the error comes behind it.
const UnitFailed = "failed: "
