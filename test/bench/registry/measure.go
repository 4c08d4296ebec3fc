// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/test/bench/load"
	"github.com/volferry/volferry/test/bench/meter"
)

// The aims, of a machine with two cores.
const (
	aimOneClient    = 583.0 // changes per second
	aimOneLatency   = 1600 * time.Microsecond
	aimManyClients  = 10000.0
	aimManyLatency  = 50 * time.Millisecond // at half of aimManyClients
	aimHeartbeats   = 0.10                  // of a core, for ten thousand hosts
	aimDisturbance  = 1.20                  // of the p99 of attaches
	aimResident     = 100 << 20
	besideClients   = 100
	besidePerSecond = 1000
	longestWindow   = time.Minute      // of the reports, however rare they are: they are spread evenly
	settleFor       = 10 * time.Second // in which all hosts begin to wait for tasks, and each is new to the registry
	fewConnections  = 4                // beside which memory is that of the attachments
)

// oneClient is one change after the other, each of which has to reach the disk.
func (b *bench) oneClient(ctx context.Context, r *report) error {
	l, err := b.drive(ctx, b.clients[:1], 0, b.seconds)
	if err != nil {
		return err
	}
	m := r.load("1 client", l)
	m.aim("≥ 583/s", l.perSecond() >= aimOneClient)
	m.aim("p50 ≤ 1.6 ms", l.p50 <= aimOneLatency)
	return nil
}

// manyClients go as fast as they can. What each change takes follows from their
// number then, and is no aim: clients / changes per second.
func (b *bench) manyClients(ctx context.Context, r *report) error {
	l, err := b.drive(ctx, b.clients, 0, b.seconds)
	if err != nil {
		return err
	}
	r.load(fmt.Sprintf("%d clients, as fast as they can, %s", len(b.clients), b.size()), l).aim("≥ 10000/s", l.perSecond() >= aimManyClients)
	return nil
}

// size says how large the site is.
func (b *bench) size() string {
	if b.filled == 0 {
		return "small site"
	}
	return fmt.Sprintf("%d attachments", b.filled)
}

// offeredRate is a load that comes whether or not the registry keeps up. At the whole of it the
// registry has to keep up, and at half of it to be quick.
func (b *bench) offeredRate(ctx context.Context, r *report) error {
	for _, rate := range []int{b.rate / 4, b.rate / 2, b.rate * 3 / 4, b.rate} {
		l, err := b.drive(ctx, b.clients, rate, b.seconds)
		if err != nil {
			return err
		}
		m := r.load(fmt.Sprintf("%d clients that offer %d/s", len(b.clients), rate), l)
		keptUp := l.perSecond() >= 0.99*float64(rate)
		switch rate {
		case b.rate / 2:
			m.aim("p99 ≤ 50 ms", l.p99 <= aimManyLatency && keptUp)
		case b.rate:
			m.aim("99 % of what is offered", keptUp)
		}
	}
	return nil
}

// fillSite brings the site to its full size, by the adoption of instances.
func (b *bench) fillSite(ctx context.Context, r *report) error {
	begin := time.Now()
	if err := b.fill(ctx, b.attachments); err != nil {
		return err
	}
	b.filled = b.attachments
	r.add("fill", fmt.Sprintf("%d attachments registered", b.attachments)).value("seconds", time.Since(begin).Seconds(), "%.1f s")
	return nil
}

// memory is that of a registry just after the load of its clients, and of the same
// registry started anew, with all its attachments and few connections.
func (b *bench) memory(ctx context.Context, r *report) error {
	if err := b.memoryNow(r, len(b.clients)); err != nil {
		return err
	}
	b.disconnect()
	b.registry.Stop()
	if err := b.registry.Start(ctx); err != nil {
		return err
	}
	if err := b.introduce(ctx); err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	few := min(fewConnections, len(b.clients))
	for _, c := range b.clients[few:] {
		c.close()
	}
	if _, err := b.drive(ctx, b.clients[:few], 0, b.seconds); err != nil {
		return err
	}
	if err := b.memoryNow(r, few); err != nil {
		return err
	}
	b.disconnect()
	return b.connect(ctx)
}

func (b *bench) memoryNow(r *report, connections int) error {
	of, err := meter.MemoryOf(b.registry.PID())
	if err != nil {
		return err
	}
	m := r.add("memory", fmt.Sprintf("memory, %s, after the load of %d connections", b.size(), connections))
	m.value("rss_mib", float64(of.Resident)/(1<<20), "RSS %.0f MiB")
	m.value("anonymous_mib", float64(of.Own)/(1<<20), "anonymous %.0f MiB")
	if connections <= len(b.clients) { // the aim is of the attachments
		m.aim("RSS ≤ 100 MiB", of.Resident <= aimResident)
	}
	return nil
}

// startReports has the hosts connect, and report from then on.
func (b *bench) startReports(ctx context.Context, r *report) (every time.Duration, err error) {
	begin := time.Now()
	before, err := b.cpuTimes()
	if err != nil {
		return 0, err
	}
	if b.hearts, err = b.connectHosts(ctx); err != nil {
		return 0, err
	}
	after, err := b.cpuTimes()
	if err != nil {
		return 0, err
	}
	m := r.add("connect", fmt.Sprintf("%d hosts connect and report for the first time", len(b.hearts)))
	m.value("seconds", time.Since(begin).Seconds(), "%.1f s")
	m.value("registry_cpu_us_per_host", micros(after.registry-before.registry, len(b.hearts)), "registry %.0f µs CPU each")

	every = everyOf(b.hearts)
	b.pulse = startPulse(ctx, b.hearts, every, b.random)
	return every, load.Until(ctx, time.Now().Add(settleFor))
}

// heartbeats is what reports alone cost.
func (b *bench) heartbeats(ctx context.Context, r *report) error {
	every, err := b.startReports(ctx, r)
	if err != nil {
		return err
	}
	window := load.NewWindow(max(b.seconds, min(every, longestWindow)))
	if err := load.Until(ctx, window.Begin); err != nil {
		return err
	}
	counts := b.hearts[0].sent
	counts.whole.Store(0)
	counts.brief.Store(0)
	counts.waits.Store(0)
	used, err := b.usageWithin(ctx, window)
	if err != nil {
		return err
	}
	whole, brief, waits := float64(counts.whole.Load()), float64(counts.brief.Load()), float64(counts.waits.Load())
	requests := whole + brief + waits
	m := r.add("heartbeats", fmt.Sprintf("%d hosts report every %.0f s, and wait for tasks in between", len(b.hearts), every.Seconds()))
	m.value("core_percent", 100*used.registry.Seconds()/used.wall.Seconds(), "%.1f %% of a core")
	m.value("requests_per_second", requests/used.wall.Seconds(), "%.0f requests/s")
	m.value("registry_cpu_us_per_request", micros(used.registry, int(requests)), "%.0f µs CPU for each report and each wait")
	m.value("whole_percent", 100*whole/max(1, whole+brief), "%.1f %% of the reports whole")
	m.usage("registry", used)
	m.aim("≤ 10 % of a core", used.registry.Seconds() <= aimHeartbeats*used.wall.Seconds())
	return b.memoryNow(r, len(b.hearts)+len(b.clients))
}

// heartbeatsBesideAttach is what reports do to attaches.
func (b *bench) heartbeatsBesideAttach(ctx context.Context, r *report) error {
	if b.pulse == nil {
		if _, err := b.startReports(ctx, r); err != nil {
			return err
		}
	}
	clients := b.clients[:min(besideClients, len(b.clients))]
	with, err := b.drive(ctx, clients, besidePerSecond, b.seconds)
	if err != nil {
		return err
	}
	if err := b.pulse.stop(); err != nil {
		return err
	}
	b.pulse = nil
	alone, err := b.drive(ctx, clients, besidePerSecond, b.seconds)
	if err != nil {
		return err
	}
	r.load(fmt.Sprintf("%d clients that offer %d/s, no hosts", len(clients), besidePerSecond), alone)
	m := r.load(fmt.Sprintf("%d clients that offer %d/s, and the reports", len(clients), besidePerSecond), with)
	m.aim("p99 ≤ 1.2 × without", float64(with.p99) <= aimDisturbance*float64(alone.p99))
	return nil
}
