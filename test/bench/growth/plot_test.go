// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rawFile is a file of raw results with these lines.
func rawFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "growth.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Two runs, the first of which was of a program that did not say when it ran.
var (
	early = []string{`{"name":"run","cpu":"A CPU"}`, `{"name":"growth","series":"size","n":1,"seconds":2}`, `{"name":"growth","series":"size","n":10,"seconds":20}`}
	late  = []string{
		`{"name":"run","at":"2026-11-28T12:00:00Z","cpu":"B CPU","disk":"vda (virtio, rotational=1)"}`,
		`{"name":"growth","series":"size","n":10,"seconds":4}`, `{"name":"growth","series":"size","n":1,"seconds":4}`, `{"name":"growth","series":"fold","n":16,"seconds":0.3}`,
	}
)

func TestRawResultsOfSeveralDaysAreDrawnAPanelForEachSeries(t *testing.T) {
	first, second, out := rawFile(t, early...), rawFile(t, late...), t.TempDir()
	o, err := parse([]string{"--out", out, "--plot", first, second}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := drawFiles(o, &said); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "growth.svg"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := string(text)
	for _, want := range []string{
		">size: time grows with the power 1.00, 0.00<", ">fold: time grows with the power unknown<",
		">" + first + ", A CPU<", ">2026-11-28T12:00:00Z, B CPU, vda (virtio, rotational=1)<",
	} {
		if strings.Count(drawn, want) != 1 {
			t.Errorf("the plot has %q not once:\n%s", want, drawn)
		}
	}
	if got := strings.Count(drawn, "<circle"); got != 5 {
		t.Errorf("there are %d dots for 5 points", got)
	}
	if strings.Contains(drawn, "NaN") || strings.Contains(drawn, "Inf") {
		t.Errorf("there are places that are no numbers:\n%s", drawn)
	}
}

func TestRunsInOneFileAreTwoRuns(t *testing.T) {
	runs, err := readRuns(rawFile(t, append(slices.Clone(early), late...)...))
	if err != nil || len(runs) != 2 || len(runs[0].of("size")) != 2 || len(runs[1].of("size")) != 2 {
		t.Fatalf("the runs are %+v: %v", runs, err)
	}
	if p := runs[1].of("size"); p[0].N != 1 {
		t.Errorf("points are not by size: %+v", p)
	}
}

func TestWhatCannotBeDrawnIsRefused(t *testing.T) {
	run := early[0]
	for _, lines := range [][]string{
		{early[1]},
		{run, "{"},
		{run, `{"name":"growth","series":"guests","n":1,"seconds":1}`},
		{run, `{"name":"growth","series":"size","n":0,"seconds":1}`},
		{run, `{"name":"growth","series":"size","n":1}`},
	} {
		if runs, err := readRuns(rawFile(t, lines...)); err == nil {
			t.Errorf("%q was taken: %+v", lines, runs)
		}
	}
	if _, err := draw([]measuredRun{{}}, seriesNames()); err == nil {
		t.Error("a plot of nothing was drawn")
	}
	for _, args := range []string{"--plot", "growth.jsonl", "--only sizes"} {
		if _, err := parse(strings.Fields(args), os.Stderr); err == nil {
			t.Errorf("%s was taken", args)
		}
	}
}

func TestEqualRatiosAreEquallyFarApart(t *testing.T) {
	a := axisOf([]float64{1, 4, 64}, 0, 300)
	if first, second := a.at(4)-a.at(1), a.at(64)-a.at(16); math.Abs(first-second) > 1e-9 || first <= 0 {
		t.Errorf("from 1 to 4 there are %v pixels, from 16 to 64 %v", first, second)
	}
	for _, values := range [][]float64{{0.23, 0.33}, {5}, {1, 100000}, {0.08, 13}} {
		a := axisOf(values, 200, 0)
		if ticks := a.ticks(); len(ticks) < 3 || len(ticks) > 9 {
			t.Errorf("of %v the ticks are %v", values, ticks)
		}
		for _, v := range values {
			if at := a.at(v); at < 0 || at > 200 {
				t.Errorf("%v of %v is at %v, outside", v, values, at)
			}
		}
	}
}
