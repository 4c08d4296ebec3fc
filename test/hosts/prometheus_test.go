// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// prometheus is a Prometheus of this test alone, on loopback.
type prometheus struct{ address string }

// monitoringPage shows the configuration that the test gives to Prometheus.
const monitoringPage = "docs/how-to/monitoring.md"

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	lasts     = regexp.MustCompile(`(?m)^( +for: ).*$`)
	alertName = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
)

// seenWithin is how long Prometheus, which looks every second, is waited for on a busy machine.
const seenWithin = 90 * time.Second

func TestPrometheusScrapesTheSiteAndAlerts(t *testing.T) {
	leftToTestHosts(t)
	program := prometheusProgram(t)
	c := startCluster(t, "alpha", "beta")
	registry, daemons := freeAddress(t), []string{}
	c.Registry.Stop()
	c.Registry.Flags = append(c.Registry.Flags, "--metrics-listen", registry)
	if err := c.Registry.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, h := range c.Hosts {
		daemons = append(daemons, freeAddress(t))
		h.KillDaemon()
		h.Metrics = daemons[len(daemons)-1]
		if err := h.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p, alerts := startPrometheus(t, program, registry, daemons)

	p.await(t, "every target is up", func() bool { return p.value(t, `sum(up{job=~"volferryd|volferry-registry"})`) == 3 })
	for job, atLeast := range map[string]float64{"volferryd": 20, "volferry-registry": 15} {
		if names := p.value(t, fmt.Sprintf(`count(count by (__name__) ({__name__=~"volferry_.+", job=%q}))`, job)); names < atLeast {
			t.Errorf("job %s has %v series of its own, want at least %v", job, names, atLeast)
		}
		if n := p.value(t, fmt.Sprintf(`count(volferry_build_info{job=%q}) or count(volferry_registry_build_info{job=%q})`, job, job)); n == 0 {
			t.Errorf("job %s does not say which version it is", job)
		}
	}
	p.await(t, "every rule was evaluated", func() bool { return p.evaluated(t) == len(alerts) })
	p.await(t, "nothing is wrong", func() bool { return len(p.firing(t)) == 0 })

	c.Registry.Stop()
	p.await(t, "the registry is away, and missed by its hosts", func() bool {
		firing := p.firing(t)
		return slices.Contains(firing, "VolferryRegistryDown") && slices.Contains(firing, "VolferryRegistryAway")
	})
	if err := c.Registry.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.await(t, "it is back", func() bool { return len(p.firing(t)) == 0 })
}

// prometheusProgram is the path of Prometheus. Where there is none the test is skipped.
func prometheusProgram(t *testing.T) string {
	t.Helper()
	if program, err := exec.LookPath("prometheus"); err == nil {
		return program
	}
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(root, "bin", "prometheus")
	if _, err := os.Stat(program); err != nil {
		t.Skip("SKIPPED: there is no prometheus on this machine, and none in bin/; .ci/promtool fetches one on Debian")
	}
	return program
}

// freeAddress is an address on loopback at which nobody listened just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := lab.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// startPrometheus starts a Prometheus as the page says it, with the targets of here and
// no delays, and returns it with the names of the alerts.
func startPrometheus(t *testing.T, program, registry string, daemons []string) (*prometheus, []string) {
	t.Helper()
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	dir := lab.TempDir(t)
	block := yamlBlock.FindStringSubmatch(read(monitoringPage))
	if block == nil {
		t.Fatalf("%s shows no configuration", monitoringPage)
	}
	const rulesOnPage, daemonsOnPage, registryOnPage = "/etc/prometheus/rules/volferry.yaml", `"hv1.example:9643", "hv2.example:9643"`, "registry.example:9644"
	for _, named := range []string{rulesOnPage, daemonsOnPage, registryOnPage} {
		if !strings.Contains(block[1], named) {
			t.Fatalf("the configuration of %s does not name %s", monitoringPage, named)
		}
	}
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n" + strings.NewReplacer(
		rulesOnPage, filepath.Join(dir, "alerts.yaml"), daemonsOnPage, `"`+strings.Join(daemons, `", "`)+`"`, registryOnPage, registry,
	).Replace(block[1])
	rules := lasts.ReplaceAllString(read("monitoring/alerts.yaml"), "${1}1s")
	for name, text := range map[string]string{"prometheus.yaml": config, "alerts.yaml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &prometheus{address: freeAddress(t)}
	p.run(t, program, dir)
	var alerts []string
	for _, m := range alertName.FindAllStringSubmatch(rules, -1) {
		alerts = append(alerts, m[1])
	}
	return p, alerts
}

// run runs Prometheus until the end of the test, and returns when it answers.
func (p *prometheus) run(t *testing.T, program, dir string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "--config.file", filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", p.address, "--log.level", "warn")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("prometheus said:\n%s", said.String())
		}
	})
	p.await(t, "Prometheus answers", func() bool {
		_, err := p.get(t, "/-/ready", nil)
		return err == nil
	})
}

// await waits until something is so.
func (p *prometheus) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(seenWithin)
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		if time.Now().After(deadline) {
			state, err := p.get(t, "/api/v1/alerts", nil)
			targets, _ := p.get(t, "/api/v1/targets", nil)
			t.Fatalf("not within %s: %s\nalerts: %s (%v)\ntargets: %.3000s", seenWithin, what, state, err, targets)
		}
		<-ticker.C
	}
}

func (p *prometheus) get(t *testing.T, path string, query url.Values) ([]byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, &body)
	}
	return body.Bytes(), nil
}

// ask decodes what an answer has under data.
func (p *prometheus) ask(t *testing.T, path string, query url.Values, data any) {
	t.Helper()
	body, err := p.get(t, path, query)
	if err != nil {
		t.Fatal(err)
	}
	doc := struct{ Data any }{data}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("%s: %v: %s", path, err, body)
	}
}

// value is the only value of an expression, 0 if it has none.
func (p *prometheus) value(t *testing.T, expression string) float64 {
	t.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	p.ask(t, "/api/v1/query", url.Values{"query": {expression}}, &data)
	if len(data.Result) == 0 {
		return 0
	}
	var value float64
	if _, err := fmt.Sscan(fmt.Sprint(data.Result[0].Value[1]), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// firing are the names of the alerts that fire.
func (p *prometheus) firing(t *testing.T) []string {
	t.Helper()
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	p.ask(t, "/api/v1/alerts", nil, &data)
	var names []string
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// evaluated is how many rules were evaluated without an error.
func (p *prometheus) evaluated(t *testing.T) (n int) {
	t.Helper()
	var data struct {
		Groups []struct{ Rules []struct{ Health string } }
	}
	p.ask(t, "/api/v1/rules", nil, &data)
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health == "ok" {
				n++
			}
		}
	}
	return n
}
