// SPDX-License-Identifier: Apache-2.0

// Package mtlstest issues certificates of another time for tests: expired ones, and certificates
// that are not valid yet.
package mtlstest

import (
	"time"

	"github.com/volferry/volferry/internal/mtls"
)

// At returns the authority ca with a clock fixed at now.
func At(ca *mtls.CA, now time.Time) *mtls.CA {
	other := *ca
	other.Now = func() time.Time { return now }
	return &other
}
