// SPDX-License-Identifier: Apache-2.0

package command

// boolParam is the value of a query parameter that is either given or not.
func boolParam(given bool) string {
	if given {
		return "1"
	}
	return ""
}
