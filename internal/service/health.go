// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// probeEvery is how often a probe tries.
	probeEvery = 15 * time.Second
	// slowAfter is how long a try may take before the program is not ready.
	slowAfter = 10 * time.Second
	// stuckAfter is how long a vital one may take before only a restart can help. A disk
	// that is merely busy may keep a commit waiting for a minute.
	stuckAfter = 2 * time.Minute
)

// Probe tries again and again whether something works that the program cannot do without.
// Nothing waits for a try, so a try that hangs is noticed.
type Probe struct {
	Name string
	// Try returns why it does not work, nil if it does. It may hang, even after its context
	// has ended.
	Try func(context.Context) error
	// Vital: the program can do nothing while the try hangs, and a restart may mend that. A
	// failure does not call for a restart: the next process would meet the same full disk.
	Vital bool
}

// Condition is what must hold for a program to be ready. It is checked at each request, so
// it has to answer from memory.
type Condition struct {
	Name string
	// Err returns why it does not hold, nil if it does.
	Err func() error
}

// Health is what a program says of itself at /healthz and /readyz, beside its metrics, and
// to the watchdog of systemd. Run drives it.
type Health struct {
	probes     []*probe
	conditions []Condition

	mu    sync.Mutex
	tasks []Task // nil before Run
}

// NewHealth returns the health of a program with these probes and conditions.
func NewHealth(probes []Probe, conditions ...Condition) *Health {
	h := &Health{conditions: conditions}
	for _, p := range probes {
		h.probes = append(h.probes, &probe{Probe: p})
	}
	return h
}

// probe is a Probe with what its tries have shown.
type probe struct {
	Probe
	mu    sync.Mutex
	since time.Time // when the try that is under way began; zero if none is
	tried bool
	err   error // of the last try
}

// watch has the tasks waited for, and every probe try until ctx ends.
func (h *Health) watch(ctx context.Context, log *slog.Logger, tasks []Task) {
	h.mu.Lock()
	h.tasks = tasks
	h.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range h.probes {
		all.Go(func() { p.run(ctx, log) })
	}
	all.Wait()
}

func (p *probe) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.begin()
		if err := p.Try(ctx); ctx.Err() == nil {
			p.end(err, log)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (p *probe) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
}

// end keeps the outcome of a try, and logs one that is unlike the one before.
func (p *probe) end(err error, log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && p.err == nil:
		log.Error("a probe fails; it is tried again", "probe", p.Name, "err", err)
	case err == nil && p.err != nil:
		log.Info("a probe succeeds again", "probe", p.Name)
	}
	p.since, p.tried, p.err = time.Time{}, true, err
}

// hangs returns an error if the try under way has lasted longer than that.
func (p *probe) hangs(longer time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return nil
	}
	if lasts := time.Since(p.since); lasts > longer {
		return fmt.Errorf("no answer for %s", lasts.Round(time.Second))
	}
	return nil
}

// failure says why the probe does not succeed now; nil if it does.
func (p *probe) failure() error {
	if err := p.hangs(slowAfter); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.tried {
		return errors.New("not tried yet")
	}
	return p.err
}

// Up reports whether the last try of the probe with this name succeeded, and no try hangs now.
func (h *Health) Up(name string) bool {
	for _, p := range h.probes {
		if p.Name == name {
			return p.failure() == nil
		}
	}
	return false
}

// finding is what is found of one thing.
type finding struct {
	name string
	err  error
}

// alive has the findings that a restart may mend.
func (h *Health) alive() (all []finding) {
	for _, p := range h.probes {
		if p.Vital {
			all = append(all, finding{p.Name, p.hangs(stuckAfter)})
		}
	}
	return all
}

// ready has what must be well for the program to do what it is there for.
func (h *Health) ready() (all []finding) {
	all = append(all, finding{"tasks", h.notReady()})
	for _, p := range h.probes {
		all = append(all, finding{p.Name, p.failure()})
	}
	for _, c := range h.conditions {
		all = append(all, finding{c.Name, c.Err()})
	}
	return all
}

// notReady names the tasks that are waited for.
func (h *Health) notReady() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var waiting []Task
	for _, t := range h.tasks {
		select {
		case <-t.Ready():
		default:
			waiting = append(waiting, t)
		}
	}
	switch {
	case h.tasks == nil:
		return errors.New("starting")
	case len(waiting) > 0:
		return fmt.Errorf("starting: %s", names(waiting))
	}
	return nil
}

// worst joins what is not well; nil if all is.
func worst(all []finding) (err error) {
	for _, f := range all {
		if f.err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, f.err))
		}
	}
	return err
}

// report answers with a line for each finding: 200 if all is well, else 503.
func report(findings func() []finding) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		all := findings()
		var body bytes.Buffer
		for _, f := range all {
			if f.err != nil {
				fmt.Fprintf(&body, "fail %s: %v\n", f.name, f.err)
			} else {
				fmt.Fprintf(&body, "ok %s\n", f.name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if worst(all) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(body.Bytes()) // to a peer that may be gone
	}
}
