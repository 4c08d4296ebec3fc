// SPDX-License-Identifier: Apache-2.0

// Package humanize formats numbers for people, and finds the names that a person may have meant.
package humanize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// Bytes formats n with a binary unit, at most one decimal and no space: 512MiB, 1.5GiB.
func Bytes(n int64) string {
	v, unit := float64(n), 0
	for math.Abs(v) >= 1024 && unit < len(byteUnits)-1 {
		v /= 1024
		unit++
	}
	// 1023.96KiB would round to 1024.0KiB.
	if math.Abs(v) >= 1023.95 && unit > 0 && unit < len(byteUnits)-1 {
		v /= 1024
		unit++
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + byteUnits[unit]
}

// ExactBytes formats n like Bytes and, from 1 KiB, adds the exact number.
func ExactBytes(n int64) string {
	if n > -1024 && n < 1024 {
		return Bytes(n)
	}
	return fmt.Sprintf("%s (%d bytes)", Bytes(n), n)
}
