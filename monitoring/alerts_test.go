// SPDX-License-Identifier: Apache-2.0

// Package monitoring has the alert rules and the dashboard, which packages ship, and no code:
// its tests hold them to each other, to the page that explains them, and to volferryctl.
package monitoring

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/monitoring/monitoringtest"
)

const (
	page     = "../docs/how-to/monitoring.md"
	pageLink = "https://github.com/volferry/volferry/blob/main/docs/how-to/monitoring.md#"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheRulesAreRight(t *testing.T) {
	monitoringtest.Promtool(t, "", "check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml")
}

func TestEachAlertFiresForWhatItIsThereFor(t *testing.T) {
	monitoringtest.Promtool(t, "", "test", "rules", "alerts_test.yaml")
}

// alert is a rule as its text has it.
type alert struct{ name, severity, runbook, description string }

var (
	oneAlert    = regexp.MustCompile(`(?m)^      - alert: (\w+)\n((?:        .*\n)*)`)
	severity    = regexp.MustCompile(`severity: (critical|warning)\n`)
	runbook     = regexp.MustCompile(`runbook_url: (\S+)\n`)
	description = regexp.MustCompile(`description: >-\n((?:            .*\n)+)`)
)

func alerts(t *testing.T) []alert {
	t.Helper()
	part := func(of *regexp.Regexp, text string) string {
		if m := of.FindStringSubmatch(text); m != nil {
			return strings.Join(strings.Fields(m[1]), " ")
		}
		return ""
	}
	text := read(t, "alerts.yaml")
	var all []alert
	for _, m := range oneAlert.FindAllStringSubmatch(text, -1) {
		all = append(all, alert{m[1], part(severity, m[2]), part(runbook, m[2]), part(description, m[2])})
	}
	if n := strings.Count(text, "alert:"); n != len(all) || n == 0 {
		t.Fatalf("read %d of %d alerts", len(all), n)
	}
	return all
}

// The page is the runbook: a heading for each alert, in the same order, to which its link
// leads.
func TestThePageHasEachAlertAndEachAlertLeadsThere(t *testing.T) {
	var want, got []string
	for _, a := range alerts(t) {
		want = append(want, a.name+" "+a.severity)
		if a.runbook != pageLink+strings.ToLower(a.name) {
			t.Errorf("%s leads to %q", a.name, a.runbook)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Volferry\w+)\n\n\*(\w+)\*`).FindAllStringSubmatch(read(t, page), -1) {
		got = append(got, m[1]+" "+strings.ToLower(m[2]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules and page differ (-rules +page)\n%s", diff)
	}
}

func TestEachAlertIsTested(t *testing.T) {
	tests := read(t, "alerts_test.yaml")
	for _, a := range alerts(t) {
		if !strings.Contains(tests, `alertname="`+a.name+`", alertstate="firing", severity="`) {
			t.Errorf("no test has %s firing", a.name)
		}
	}
}

// Whoever is woken at night types what the alert says.
func TestEachAlertNamesACommandThatThereIs(t *testing.T) {
	help := read(t, "../ctl/internal/command/testdata/help.golden")
	command := regexp.MustCompile("`volferryctl ([a-z]+(?: [a-z]+)?)")
	check := func(where, text string) int {
		found := command.FindAllStringSubmatch(text, -1)
		for _, m := range found {
			if !strings.Contains(help, "$ volferryctl "+m[1]+" --help\n") {
				t.Errorf("%s names volferryctl %s, which there is not", where, m[1])
			}
		}
		return len(found)
	}
	for _, a := range alerts(t) {
		if check(a.name, a.description) == 0 {
			t.Errorf("%s names no command", a.name)
		}
	}
	check(page, read(t, page))
}
