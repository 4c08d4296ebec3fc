// SPDX-License-Identifier: Apache-2.0

package server

// WhoIs is whoIs.
var WhoIs = whoIs

// BoundWhole sets how many bytes an answer to a caller that knows no pages may have, until restore
// is called.
func BoundWhole(bytes int) (restore func()) {
	before := ofWhole
	ofWhole.bytes = bytes
	return func() { ofWhole = before }
}
