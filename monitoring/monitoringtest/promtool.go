// SPDX-License-Identifier: Apache-2.0

package monitoringtest

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// root is the top of the repository, as seen from the package that is tested.
func root(t *testing.T) string {
	t.Helper()
	dir := "."
	for range 8 {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Join("..", dir)
	}
	t.Fatal("there is no go.mod above this package")
	return ""
}

// Promtool runs promtool with that on its standard input, and fails the test with what it
// says if it is not content. Where there is none the test is skipped.
func Promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		program, err = filepath.Abs(filepath.Join(root(t), "bin", "promtool"))
		if err == nil {
			_, err = os.Stat(program)
		}
	}
	if err != nil {
		t.Skip("SKIPPED: there is no promtool on this machine, and none in bin/; .ci/promtool fetches one on Debian")
	}
	run := exec.CommandContext(t.Context(), program, args...)
	run.Stdin = strings.NewReader(stdin)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// CheckScrape has promtool check what a scrape gets.
func CheckScrape(t *testing.T, from prometheus.Gatherer) {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(from, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	Promtool(t, w.Body.String(), "check", "metrics")
}
