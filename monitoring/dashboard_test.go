// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/monitoring/monitoringtest"
)

// dashboard is what the tests read of dashboard.json.
type dashboard struct {
	Title      string
	UID        string
	Panels     []panel
	Templating struct{ List []variable }
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Datasource  *datasource
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		RefID      string
		Expr       string
		Datasource *datasource
	}
}

type datasource struct{ Type, UID string }

type variable struct{ Name, Query, Type string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 10 || d.Title == "" || d.UID == "" {
		t.Fatalf("read %d panels of dashboard %q (%s)", len(d.Panels), d.Title, d.UID)
	}
	return d
}

// labelValues is the query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.*), [a-z_]+\)$`)

// filledIn is an expression as Grafana sends it.
var filledIn = strings.NewReplacer("$__rate_interval", "1m", "$__range", "6h", "$host", ".*")

func TestPrometheusUnderstandsEveryExpressionOfTheDashboard(t *testing.T) {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	add := func(expr string) {
		expr = filledIn.Replace(expr)
		if strings.Contains(expr, "$") {
			t.Errorf("nothing fills in all of %s", expr)
		}
		rules = append(rules, rule{fmt.Sprintf("dashboard:%d", len(rules)), expr})
	}
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			add(target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Query)
		if m == nil {
			t.Fatalf("the query of %s is %s", v.Name, v.Query)
		}
		add(m[1])
	}
	// JSON is YAML.
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	monitoringtest.Promtool(t, "", "check", "rules", file)
}

// Two panels in one place hide each other, and two of one id are one.
func TestThePanelsOfTheDashboardAreWhole(t *testing.T) {
	ids, places := map[int]string{}, map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		if p.Title == "" || p.ID == 0 || ids[p.ID] != "" {
			t.Errorf("panel %q has id %d, as has %q", p.Title, p.ID, ids[p.ID])
		}
		ids[p.ID] = p.Title
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := places[place]; other != "" || place[0] >= 24 {
					t.Fatalf("%q is over %q, or out of the page", p.Title, other)
				}
				places[place] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		chosen := &datasource{Type: "prometheus", UID: "${datasource}"}
		if len(p.Targets) == 0 || p.Datasource == nil || *p.Datasource != *chosen {
			t.Errorf("%q reads from %v", p.Title, p.Datasource)
		}
		for _, target := range p.Targets {
			if target.RefID == "" || target.Datasource == nil || *target.Datasource != *chosen {
				t.Errorf("%q has %q read from %v", p.Title, target.Expr, target.Datasource)
			}
		}
	}
}

// What is measured in seconds or bytes says so.
func TestThePanelsOfTheDashboardHaveTheUnitsOfTheirMetrics(t *testing.T) {
	units := map[string]string{"_bytes": "bytes", "_bytes_total": "bytes", "_bytes_per_second": "Bps", "_seconds": "s", "_seconds_bucket": "s", "_seconds_total": "s"}
	metric := regexp.MustCompile(`volferry_[a-z_]*[a-z]`)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			if p.Type == "heatmap" {
				continue // its unit is that of its axis
			}
			name := metric.FindString(target.Expr)
			for suffix, unit := range units {
				if strings.HasSuffix(name, suffix) && p.FieldConfig.Defaults.Unit != unit {
					t.Errorf("%q shows %s in %q, want %q", p.Title, name, p.FieldConfig.Defaults.Unit, unit)
				}
			}
		}
	}
}

func TestThePackageHasRulesAndDashboard(t *testing.T) {
	contents := read(t, "../packaging/nfpm/volferry-registry.yaml")
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		const to = "/usr/share/doc/volferry-registry/monitoring/"
		if !strings.Contains(contents, "{src: monitoring/"+file+", dst: "+to+file+",") {
			t.Errorf("the package has no %s", file)
		}
		if !strings.Contains(read(t, page), "`"+to+file+"`") {
			t.Errorf("the page does not say where %s is", file)
		}
	}
}
