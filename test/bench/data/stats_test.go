// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func hundred() (latencies []time.Duration) {
	for i := range 100 {
		latencies = append(latencies, time.Duration(i+1)*time.Millisecond)
	}
	return latencies
}

func TestAQuantileIsTheSmallestThatTheShareDoesNotExceed(t *testing.T) {
	for q, want := range map[float64]int{0: 1, 0.5: 50, 0.99: 99, 0.999: 100, 1: 100} {
		if got := quantile(hundred(), q); got != time.Duration(want)*time.Millisecond {
			t.Errorf("of 1 to 100 ms the quantile %v is %v, want %d ms", q, got, want)
		}
	}
	if got := quantile(hundred()[:1], 0.999); got != time.Millisecond {
		t.Errorf("of one latency the quantile is %v", got)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of none the quantile is %v", got)
	}
}

func TestTheMedianIsInTheMiddleWhateverTheOrder(t *testing.T) {
	values := []float64{9, 1, 5}
	if got := median(values); got != 5 {
		t.Errorf("of three the median is %v, want 5", got)
	}
	if diff := cmp.Diff([]float64{9, 1, 5}, values); diff != "" {
		t.Errorf("the values were changed:\n%s", diff)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("of four the median is %v, want 2.5", got)
	}
}

func TestEachIsFirstOnceInAsManyRoundsAndNoneIsLeftOut(t *testing.T) {
	var got [][]string
	for round := range 4 {
		got = append(got, rotated([]string{"a", "b", "c"}, round))
	}
	want := [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"a", "b", "c"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
}
