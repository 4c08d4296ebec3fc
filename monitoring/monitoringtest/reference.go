// SPDX-License-Identifier: Apache-2.0

package monitoringtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// CheckReference claims that the table of a program in the reference of the metrics lists
// exactly what it gathers: names, labels and types.
func CheckReference(t *testing.T, program string, from prometheus.Gatherer) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+program+"\n")
	if !found {
		t.Fatalf("the reference has no %s", program)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var want []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.HasPrefix(cells[1], " `") {
			name, labels, _ := strings.Cut(strings.Trim(cells[1], " `}"), "{")
			want = append(want, described(name, strings.Split(labels, ","), strings.TrimSpace(cells[2])))
		}
	}
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		got = append(got, described(f.GetName(), labels, strings.ToLower(f.GetType().String())))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reference and metrics differ (-reference +metrics)\n%s", diff)
	}
}

// described is a metric as a line, whatever the order of its labels.
func described(name string, labels []string, kind string) string {
	slices.Sort(labels)
	return name + "{" + strings.Join(labels, ",") + "} " + kind
}
