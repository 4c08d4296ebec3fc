// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// sizesEvery is the least interval between reports in full that only update the pools' free
	// space.
	sizesEvery = 30 * time.Second
	// wholeEvery is the interval after which the next report is a full one, changed or not.
	wholeEvery = 5 * time.Minute
)

// lastReport is the last full report that the registry has taken, at its time; heard is when the
// registry last took it or its digest.
type lastReport struct {
	report    api.HostReport
	digest    string
	at, heard time.Time
}

// covers reports whether the registry has received the content of report r before, so that a digest
// suffices now.
func (l lastReport) covers(r api.HostReport, now time.Time) bool {
	age := now.Sub(l.at)
	return age < wholeEvery && l.says(r, age >= sizesEvery)
}

// says reports whether report r has nothing new, with or without the sizes of pools. Without a
// digest, from an older registry, every report is new.
func (l lastReport) says(r api.HostReport, sizes bool) bool {
	if l.digest == "" || r.Version != l.report.Version || r.BootID != l.report.BootID || !slices.Equal(r.Instances, l.report.Instances) {
		return false
	}
	return (r.Pools == nil) == (l.report.Pools == nil) &&
		slices.EqualFunc(r.Pools, l.report.Pools, func(a, b api.Pool) bool { return samePool(a, b, sizes) })
}

// samePool reports whether a pool is unchanged; without sizes its sizes are ignored.
func samePool(a, b api.Pool, sizes bool) bool {
	a.UpdatedAt = b.UpdatedAt
	if !sizes {
		a.CapacityBytes, a.FreeBytes = b.CapacityBytes, b.FreeBytes
	}
	return reflect.DeepEqual(a, b)
}

// reportLater reports whether the registry refused a report because it has taken too many from this
// host.
func reportLater(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Details[api.DetailReportLater] == true
}

// reportWhole reports whether the registry does not know the report of a digest.
func reportWhole(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == api.CodeConflict && e.Details[api.DetailReportWhole] == true
}
