// SPDX-License-Identifier: Apache-2.0

// Package monitoringtest holds alert rules and dashboard to the metrics that the programs
// have, for tests only. It knows no program: each hands in what it gathers.
package monitoringtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Use is a metric as rules or dashboard name it.
type Use struct {
	File   string
	Name   string
	Labels []string // those that its selector names
}

var (
	metric = regexp.MustCompile(`\b(volferry_[a-z_]*[a-z])(?:\{([^}]*)\})?`)
	label  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	// ofScrape are the labels that Prometheus sets.
	ofScrape = []string{"job", "instance"}
	// parts are what the series of a histogram or of a summary end with.
	parts = []string{"_bucket", "_sum", "_count"}
)

// Uses returns the metrics that are named in the rules and in the dashboard.
func Uses(t *testing.T) []Use {
	t.Helper()
	var all []Use
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join(root(t), "monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
			use := Use{File: file, Name: m[1]}
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				use.Labels = append(use.Labels, l[1])
			}
			all = append(all, use)
		}
	}
	if len(all) < 10 {
		t.Fatalf("found %d metrics; this test looks at the wrong place", len(all))
	}
	return all
}

// CheckUses claims that every metric which rules and dashboard name is one of those that a
// program gathers, with the labels that they select by, as far as ours says that it is of
// this program.
func CheckUses(t *testing.T, from prometheus.Gatherer, ours func(name string) bool) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, f := range families {
		has := slices.Clone(ofScrape)
		for _, l := range f.GetMetric()[0].GetLabel() {
			has = append(has, l.GetName())
		}
		switch f.GetType().String() {
		case "HISTOGRAM", "SUMMARY":
			for _, part := range parts {
				labels[f.GetName()+part] = has
			}
		default:
			labels[f.GetName()] = has
		}
	}
	for _, use := range Uses(t) {
		if !ours(use.Name) {
			continue
		}
		has, exists := labels[use.Name]
		if !exists {
			t.Errorf("%s has %s, which is no metric", use.File, use.Name)
			continue
		}
		for _, l := range use.Labels {
			if !slices.Contains(has, l) && (l != "le" || !strings.HasSuffix(use.Name, "_bucket")) {
				t.Errorf("%s selects %s by %s, which it has not", use.File, use.Name, l)
			}
		}
	}
}
