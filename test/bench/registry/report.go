// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/volferry/volferry/test/bench/meter"
)

// report is all measurements of a run.
type report struct {
	out          io.Writer
	about        map[string]any
	measurements []*measurement
	printed      int // of them
}

// measurement is one line of the table, and one of the file.
type measurement struct {
	name, what string
	values     map[string]float64
	shown      []string
	aims       []aim
}

type aim struct {
	Aim     string `json:"aim"`
	Reached bool   `json:"reached"`
}

// newReport describes the machine and the run.
func newReport(b *bench, out io.Writer) (*report, error) {
	r := &report{out: out, about: meter.Machine(b.dir)}
	p50, p99, err := syncTimes(b.dir)
	if err != nil {
		return nil, err
	}
	r.about["name"] = "run"
	r.about["at"] = time.Now().UTC().Format(time.RFC3339)
	r.about["seed"] = b.seed
	r.about["seconds"] = b.seconds.Seconds()
	r.about["version"] = b.version
	r.about["rounds"] = b.rounds
	r.about["clients"] = len(b.clients)
	r.about["clients_hosts"] = len(b.hosts)
	fmt.Fprintf(out, "%v, %v CPUs, %v GiB of RAM, %v, kernel %v, load average %v, %v, %v; %d clients of %d hosts\n",
		r.about["cpu"], r.about["cpus"], r.about["memory_gib"], r.about["disk"], r.about["kernel"], r.about["load_average"], r.about["go"], b.version, len(b.clients), len(b.hosts))
	r.add("disk", "4 KiB appended and made durable, without the registry").times(p50, p99)
	r.print()
	return r, nil
}

func (r *report) add(name, what string) *measurement {
	m := &measurement{name: name, what: what, values: map[string]float64{}}
	r.measurements = append(r.measurements, m)
	return m
}

// load adds what a load came to.
func (r *report) load(what string, l driven) *measurement {
	return r.driven("load", "registry", what, l)
}

// etcd adds what a load on etcd came to.
func (r *report) etcd(what string, l driven) { r.driven("etcd", "etcd", what, l) }

func (r *report) driven(name, server, what string, l driven) *measurement {
	m := r.add(name, what)
	m.value("changes_per_second", l.perSecond(), "%.0f/s")
	m.times(l.p50, l.p99)
	m.values["p999_ms"] = millis(l.p999)
	m.values["changes"] = float64(l.Changes)
	m.value("cycles_per_second", float64(l.Cycles)/l.wall.Seconds(), "%.0f cycles/s")
	m.value(server+"_cpu_us_per_change", micros(l.registry, l.Changes), server+" %.0f µs CPU each")
	m.values["load_cpu_us_per_change"] = micros(l.usage.load, l.Changes)
	if c := l.commits; c.count > 0 {
		m.value("batch_size", c.changes/c.count, "%.1f changes in a commit")
		m.value("commit_ms", 1000*c.took.Seconds()/c.count, "%.2f ms each")
		m.value("written_kib_per_change", float64(l.written)/1024/c.changes, "%.1f KiB written for a change")
	}
	m.usage(server, l.usage)
	return m
}

func (m *measurement) value(name string, v float64, format string) {
	m.values[name] = v
	m.shown = append(m.shown, fmt.Sprintf(format, v))
}

func (m *measurement) times(p50, p99 time.Duration) {
	m.value("p50_ms", millis(p50), "p50 %.2f ms")
	m.value("p99_ms", millis(p99), "p99 %.2f ms")
}

// usage adds who used the machine's CPUs, in cores.
func (m *measurement) usage(server string, u usage) {
	cores := func(d time.Duration) float64 { return d.Seconds() / u.wall.Seconds() }
	m.values[server+"_cores"], m.values["load_cores"], m.values["others_cores"] = cores(u.registry), cores(u.load), cores(u.others)
	m.shown = append(m.shown, fmt.Sprintf("cores: %s %.2f, load %.2f, others %.2f", server, cores(u.registry), cores(u.load), cores(u.others)))
}

func (m *measurement) aim(text string, reached bool) { m.aims = append(m.aims, aim{text, reached}) }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// print writes what was measured since the last time.
func (r *report) print() {
	for _, m := range r.measurements[r.printed:] {
		fmt.Fprintf(r.out, "\n%s\n    %s\n", m.what, strings.Join(m.shown, ", "))
		for _, a := range m.aims {
			word := "MISSED "
			if a.Reached {
				word = "reached"
			}
			fmt.Fprintf(r.out, "    aim %s: %s\n", word, a.Aim)
		}
	}
	r.printed = len(r.measurements)
}

// save adds the raw numbers to a file, as a line for the run and one for each
// measurement.
func (r *report) save(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("save the numbers: %w", err)
	}
	lines := json.NewEncoder(f)
	errs := []error{lines.Encode(r.about)}
	for _, m := range r.measurements {
		line := map[string]any{"name": m.name, "what": m.what, "aims": m.aims}
		for name, v := range m.values {
			line[name] = v
		}
		errs = append(errs, lines.Encode(line))
	}
	if err := errors.Join(append(errs, f.Close())...); err != nil {
		return fmt.Errorf("save the numbers: %w", err)
	}
	return nil
}

func micros(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(max(1, n)) }
