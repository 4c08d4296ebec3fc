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
	probeEvery = 15 * time.Second
	// slowAfter is the duration of a try after which the program is not ready.
	slowAfter = 10 * time.Second
	// stuckAfter is the duration of a vital try after which the program needs a restart. A busy
	// disk may delay a commit for a minute.
	stuckAfter = 2 * time.Minute
)

// Probe checks periodically whether something that the program needs works.
type Probe struct {
	Name string
	// Try may hang, even after its context has ended.
	Try func(context.Context) error
	// Vital: the program can do nothing while the try hangs, and a restart may help. A failed try
	// causes no restart: the next process would find the same full disk.
	Vital bool
}

// Condition must hold so that a program is ready. It is checked at each request, so Err must
// answer from memory.
type Condition struct {
	Name string
	Err  func() error
}

// Health is the state that a program reports at /healthz and /readyz, and to the watchdog of
// systemd.
type Health struct {
	probes     []*probe
	conditions []Condition

	mu    sync.Mutex
	tasks []Task // nil before Run
}

// NewHealth returns a Health with these probes and conditions.
func NewHealth(probes []Probe, conditions ...Condition) *Health {
	h := &Health{conditions: conditions}
	for _, p := range probes {
		h.probes = append(h.probes, &probe{Probe: p})
	}
	return h
}

type probe struct {
	Probe
	mu    sync.Mutex
	since time.Time // zero if none runs
	tried bool
	err   error
}

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

// Up reports whether the last try of the named probe succeeded, and no try hangs now.
func (h *Health) Up(name string) bool {
	for _, p := range h.probes {
		if p.Name == name {
			return p.failure() == nil
		}
	}
	return false
}

type finding struct {
	name string
	err  error
}

// alive returns the findings that a restart may fix.
func (h *Health) alive() (all []finding) {
	for _, p := range h.probes {
		if p.Vital {
			all = append(all, finding{p.Name, p.hangs(stuckAfter)})
		}
	}
	return all
}

// ready returns the findings about everything that the program needs to do its work.
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

func worst(all []finding) (err error) {
	for _, f := range all {
		if f.err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, f.err))
		}
	}
	return err
}

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
		_, _ = w.Write(body.Bytes()) // the peer may be gone
	}
}
