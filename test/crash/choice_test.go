// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"slices"
	"testing"
)

func TestASeriesOfDeathsHasAllPointsInTheirOrderOrThoseOfItsTimeInOneOfItsSeed(t *testing.T) {
	way := make([]int, 50)
	for i := range way {
		way[i] = i
	}
	order := func(crash, seed string) (struck []int) {
		t.Helper()
		t.Setenv(Env, crash)
		t.Setenv(SeedEnv, seed)
		if n := InTime(t, way, func(p int) bool { struck = append(struck, p); return true }); n != len(struck) {
			t.Errorf("%d were struck at, it says %d", len(struck), n)
		}
		return struck
	}
	for _, whole := range []string{"all", ""} {
		if got := order(whole, "7"); !slices.Equal(got, way) {
			t.Errorf("with %q: %v, want all in their order", whole, got)
		}
	}
	if got := order("0s", "7"); len(got) != 1 {
		t.Errorf("without time: %v, want one", got)
	}
	seven := order("1h", "7")
	if sorted := slices.Sorted(slices.Values(seven)); !slices.Equal(sorted, way) || slices.Equal(seven, way) {
		t.Errorf("with time for all: %v, want each once, in another order", seven)
	}
	if !slices.Equal(seven, order("1h", "7")) || slices.Equal(seven, order("1h", "8")) {
		t.Error("the order does not follow from the seed")
	}
	if n := InTime(t, way, func(int) bool { return false }); n != 1 {
		t.Errorf("%d were struck at after it said no", n)
	}
}
