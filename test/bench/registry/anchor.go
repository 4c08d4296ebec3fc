// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/test/bench/load"
	"github.com/volferry/volferry/test/lab"
)

// besideEtcd measures the registry and etcd in turns, with the same changes from as many clients of
// as many hosts, on the same disk. What stands still meanwhile costs the other nothing.
func (b *bench) besideEtcd(ctx context.Context, r *report) error {
	if b.etcd == "" {
		r.add("skipped", "SKIPPED beside etcd: no --etcd says where it is")
		return nil
	}
	e, err := b.startEtcd(ctx)
	if err != nil {
		return err
	}
	defer e.stop()
	many := len(b.clients)
	for _, l := range []struct{ clients, rate int }{{1, 0}, {many, 0}, {many, b.rate / 10}, {many, b.rate / 4}, {many, b.rate / 2}} {
		var ours, theirs []driven
		for range b.rounds {
			b.disconnect() // the registry has ended what stood still for long
			if err := b.connect(ctx); err != nil {
				return err
			}
			mine, err := b.drive(ctx, b.clients[:l.clients], l.rate, b.seconds)
			if err != nil {
				return err
			}
			its, err := e.drive(ctx, l.clients, l.rate, b.seconds)
			if err != nil {
				return err
			}
			ours, theirs = append(ours, mine), append(theirs, its)
		}
		what := fmt.Sprintf("%d clients of %d hosts, as fast as they can", l.clients, load.Hosts(l.clients))
		if l.rate > 0 {
			what = fmt.Sprintf("%d clients of %d hosts that offer %d/s", l.clients, load.Hosts(l.clients), l.rate)
		}
		r.compare(what, ours, theirs)
	}
	return nil
}

// compare adds the rounds of both, and how their medians are to each other.
func (r *report) compare(what string, ours, theirs []driven) {
	for i := range ours {
		r.load(fmt.Sprintf("%s, round %d, the registry", what, i+1), ours[i])
		r.etcd(fmt.Sprintf("%s, round %d, etcd", what, i+1), theirs[i])
	}
	rate := median(ours, driven.perSecond) / median(theirs, driven.perSecond)
	p99 := func(d driven) float64 { return d.p99.Seconds() }
	cpu := func(d driven) float64 { return micros(d.registry, d.Changes) }
	latency := median(ours, p99) / median(theirs, p99)
	m := r.add("ratio", what+": the registry to etcd, medians")
	m.value("rate_ratio", rate, "%.2f times its changes per second")
	m.value("p99_ratio", latency, "%.2f times its p99")
	m.value("cpu_ratio", median(ours, cpu)/median(theirs, cpu), "%.2f times its CPU time")
	m.aim("no fewer changes than etcd (99 %)", rate >= 0.99)
	m.aim("no longer p99 than etcd", latency <= 1)
}

// median is that of what value says of each round.
func median(rounds []driven, value func(driven) float64) float64 {
	values := make([]float64, 0, len(rounds))
	for _, d := range rounds {
		values = append(values, value(d))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// etcd is one that runs, and the program that puts load on it.
type etcd struct {
	program     string
	listen      string
	certificate string // directory of a host's
	tls         string
	seed        uint64
	server      *exec.Cmd
}

// startEtcd returns when etcd answers. Stop must be called.
func (b *bench) startEtcd(ctx context.Context) (*etcd, error) {
	listen, err := lab.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	e := &etcd{program: b.etcd, listen: listen, certificate: filepath.Join(b.dir, "etcd-client"), tls: b.registry.TLSDir(), seed: b.seed}
	if err := b.registry.Issue(ctx, e.certificate, "host", "etcd"); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	e.server = exec.CommandContext(ctx, e.program, "serve", "--dir", filepath.Join(b.dir, "etcd"), "--listen", e.listen, "--tls", e.tls)
	e.server.Stderr = os.Stderr
	e.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := e.server.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if err := e.server.Start(); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "ready" {
		e.stop()
		return nil, fmt.Errorf("start etcd: it says %q: %w", line, err)
	}
	return e, nil
}

func (e *etcd) stop() {
	_ = e.server.Process.Signal(syscall.SIGTERM)
	_ = e.server.Wait()
}

// drive has the load program measure, with ids of its own each time.
func (e *etcd) drive(ctx context.Context, clients, perSecond int, length time.Duration) (driven, error) {
	e.seed++
	cmd := exec.CommandContext(ctx, e.program, "load", "--listen", e.listen, "--tls", e.tls, "--certificate", e.certificate,
		"--server", strconv.Itoa(e.server.Process.Pid), "--clients", strconv.Itoa(clients), "--rate", strconv.Itoa(perSecond),
		"--time", length.String(), "--seed", strconv.FormatUint(e.seed, 10))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return driven{}, fmt.Errorf("put load on etcd: %w", err)
	}
	var said load.Summary
	if err := json.Unmarshal(out, &said); err != nil {
		return driven{}, fmt.Errorf("read what the load on etcd came to: %w", err)
	}
	return driven{
		Changes: said.Changes, Cycles: said.Cycles, p50: seconds(said.P50), p99: seconds(said.P99), p999: seconds(said.P999),
		usage: usage{wall: seconds(said.Seconds), registry: seconds(said.ServerCPU), load: seconds(said.LoadCPU), others: seconds(said.OthersCPU)},
	}, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
