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
	// sizesEvery is how often the registry hears what the pools have free, if that is
	// all that has changed and a report is made then.
	sizesEvery = 30 * time.Second
	// wholeEvery is how often it hears everything, by the next report, whether or not it has
	// changed.
	wholeEvery = 5 * time.Minute
)

// lastReport is the last whole report that the registry has taken, and when; heard is when it
// took that or a digest of it.
type lastReport struct {
	report    api.HostReport
	digest    string
	at, heard time.Time
}

// covers reports whether a report that is made now need not say what it says, because the registry
// was told the same.
func (l lastReport) covers(r api.HostReport, now time.Time) bool {
	age := now.Sub(l.at)
	return age < wholeEvery && l.says(r, age >= sizesEvery)
}

// says reports whether a report has nothing new in it, with the sizes of pools or without. For a
// registry that gives no digest all is new.
func (l lastReport) says(r api.HostReport, sizes bool) bool {
	if l.digest == "" || r.Version != l.report.Version || r.BootID != l.report.BootID || !slices.Equal(r.Instances, l.report.Instances) {
		return false
	}
	return (r.Pools == nil) == (l.report.Pools == nil) &&
		slices.EqualFunc(r.Pools, l.report.Pools, func(a, b api.Pool) bool { return samePool(a, b, sizes) })
}

// samePool reports whether nothing of a pool has changed but, without sizes, its sizes.
func samePool(a, b api.Pool, sizes bool) bool {
	a.UpdatedAt = b.UpdatedAt
	if !sizes {
		a.CapacityBytes, a.FreeBytes = b.CapacityBytes, b.FreeBytes
	}
	return reflect.DeepEqual(a, b)
}

// reportLater reports whether the registry has heard too much of this host for the moment.
func reportLater(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Details[api.DetailReportLater] == true
}

// reportWhole reports whether the registry does not know what a digest stands for.
func reportWhole(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == api.CodeConflict && e.Details[api.DetailReportWhole] == true
}
