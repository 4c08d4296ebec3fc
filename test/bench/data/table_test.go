// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// results are of two contenders that move a volume of 1 GiB, one of which fails twice.
func results() ([]record, []group) {
	g := group{name: stopped, contenders: []contender{{name: "fast"}, {name: "slow"}, {name: "broken"}}}
	var records []record
	for i, seconds := range []float64{1, 2, 3} {
		records = append(records,
			record{Group: stopped, Contender: "fast", Round: i, SizeBytes: 1 << 30, TotalSeconds: seconds, Cost: &cost{}},
			record{Group: stopped, Contender: "slow", Round: i, SizeBytes: 1 << 30, TotalSeconds: 3 * seconds, Cost: &cost{MoverCPUSeconds: 0.5}},
			record{Group: stopped, Contender: "broken", Round: i, SizeBytes: 1 << 30, TotalSeconds: 0.001, Error: "a block is wrong"})
	}
	return records, []group{g}
}

func TestTheTableHasMediansAndHowManyTimesTheBestTheyAre(t *testing.T) {
	records, groups := results()
	text := table(map[string]any{}, records, groups)
	for _, want := range []string{"| fast | 3 | 2 (1.00×) | 0 |", "| slow | 3 | 6 (3.00×) | 0.5 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no line %q:\n%s", want, text)
		}
	}
}

func TestAContenderThatFailsIsNeverFast(t *testing.T) {
	records, groups := results()
	text := table(map[string]any{}, records, groups)
	if !strings.Contains(text, "| broken | 3, **3 failed** | – |") || strings.Contains(text, "0.001") {
		t.Errorf("the table does not say that the contender failed:\n%s", text)
	}
	if drawn := plot(records, groups); strings.Count(drawn, "no number") != 1 || strings.Count(drawn, "<circle") != 6 {
		t.Errorf("the plot does not leave out what failed:\n%s", drawn)
	}
}

func TestThePlotIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(plot(results())))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
