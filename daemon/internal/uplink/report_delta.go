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
	// sizesEvery is the shortest interval between reports that have only new free space.
	sizesEvery = 30 * time.Second
	wholeEvery = 5 * time.Minute
)

type lastReport struct {
	report    api.HostReport
	digest    string
	at, heard time.Time
}

func (l lastReport) covers(r api.HostReport, now time.Time) bool {
	age := now.Sub(l.at)
	return age < wholeEvery && l.says(r, age >= sizesEvery)
}

// says reports whether r has nothing new since the last report. Without sizes it ignores the sizes
// of pools. It returns false until the registry has sent a digest.
func (l lastReport) says(r api.HostReport, sizes bool) bool {
	if l.digest == "" || r.Version != l.report.Version || r.BootID != l.report.BootID || !slices.Equal(r.Instances, l.report.Instances) {
		return false
	}
	return (r.Pools == nil) == (l.report.Pools == nil) &&
		slices.EqualFunc(r.Pools, l.report.Pools, func(a, b api.Pool) bool { return samePool(a, b, sizes) })
}

func samePool(a, b api.Pool, sizes bool) bool {
	a.UpdatedAt = b.UpdatedAt
	if !sizes {
		a.CapacityBytes, a.FreeBytes = b.CapacityBytes, b.FreeBytes
	}
	return reflect.DeepEqual(a, b)
}

func reportLater(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Details[api.DetailReportLater] == true
}

func reportWhole(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == api.CodeConflict && e.Details[api.DetailReportWhole] == true
}
