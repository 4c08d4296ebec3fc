// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"slices"
	"testing"
)

func TestDisksOfOneThrottleGroupAreLimitedTogether(t *testing.T) {
	dom := Domain{Live: []Disk{{Target: "vda", ThrottleGroup: "slow"}, {Target: "vdb"}, {Target: "vdc", ThrottleGroup: "slow"}, {Target: "vdd", ThrottleGroup: "fast"}}}
	for target, want := range map[string][]string{"vda": {"vdc"}, "vdb": nil, "vdc": {"vda"}, "vdd": nil, "vde": nil} {
		if got := dom.LimitedWith(target); !slices.Equal(got, want) {
			t.Errorf("%s is limited with %v, want %v", target, got, want)
		}
	}
}
