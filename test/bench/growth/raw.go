// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// measuredRun is what one run has measured.
type measuredRun struct {
	label  string // when and where that was, as far as the raw results say it
	points []point
}

// of are the points of a series, by their size.
func (r measuredRun) of(series string) []point {
	points := slices.DeleteFunc(slices.Clone(r.points), func(p point) bool { return p.Series != series })
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.N, b.N) })
	return points
}

// readRuns reads raw results: of each run a line about the machine, and one for each point.
func readRuns(path string) (runs []measuredRun, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for lines := json.NewDecoder(f); ; {
		var line struct {
			point
			At   string `json:"at"`
			CPU  string `json:"cpu"`
			Disk string `json:"disk"`
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return runs, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if line.Name == "run" {
			words := []string{line.At, line.CPU, line.Disk}
			if line.At == "" {
				words[0] = path
			}
			words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
			runs = append(runs, measuredRun{label: strings.Join(words, ", ")})
			continue
		}
		switch {
		case len(runs) == 0:
			return nil, fmt.Errorf("%s: it does not begin with a run", path)
		case !slices.Contains(seriesNames(), line.Series):
			return nil, fmt.Errorf("%s: there is no series %q", path, line.Series)
		case line.N < 1 || line.Seconds <= 0:
			return nil, fmt.Errorf("%s: %s, %d: no logarithm of %v s over %d", path, line.Series, line.N, line.Seconds, line.N)
		}
		last := &runs[len(runs)-1]
		last.points = append(last.points, line.point)
	}
}
