// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/volferry/volferry/test/bench/load"
	"github.com/volferry/volferry/test/bench/meter"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// measure has the clients make changes and prints what that came to.
func measure(ctx context.Context, o options) error {
	clients, closeAll, err := connect(ctx, o)
	if err != nil {
		return err
	}
	defer closeAll()
	var (
		w       = load.NewWindow(o.seconds)
		done    = make(chan error, 1)
		changes load.Result
	)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		var err error
		if changes, err = load.Drive(ctx, clients, o.rate, w); err != nil {
			stop(err) // nobody has to wait for the end of the window
		}
		done <- err
	}()
	before, beforeErr := timesAt(ctx, w.Begin, o.server)
	after, afterErr := timesAt(ctx, w.End, o.server)
	if err := errors.Join(<-done, beforeErr, afterErr); err != nil {
		return err
	}
	r := load.Summary{
		Changes: changes.Changes, Cycles: changes.Cycles, Seconds: after.at.Sub(before.at).Seconds(),
		P50: changes.Quantile(0.5).Seconds(), P99: changes.Quantile(0.99).Seconds(), P999: changes.Quantile(0.999).Seconds(),
		ServerCPU: (after.server - before.server).Seconds(), LoadCPU: (after.load - before.load).Seconds(),
	}
	r.OthersCPU = max(0, (after.machine-before.machine).Seconds()-r.ServerCPU-r.LoadCPU)
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// connect makes the clients, each with a volume and an instance, and each host with a connection.
func connect(ctx context.Context, o options) (clients []*client, closeAll func(), err error) {
	var connections []*clientv3.Client
	closeAll = func() {
		for _, c := range connections {
			_ = c.Close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	config, err := o.identity(filepath.Join(o.certificate, "host.crt"), filepath.Join(o.certificate, "host.key")).ClientConfig()
	if err != nil {
		return nil, closeAll, fmt.Errorf("read certificate: %w", err)
	}
	ids := rand.New(rand.NewPCG(o.seed, 0))
	var hosts []string
	for range load.Hosts(o.clients) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + o.listen}, TLS: config, DialTimeout: answerTimeout, Context: ctx})
		if err != nil {
			return nil, closeAll, fmt.Errorf("connect to etcd: %w", err)
		}
		connections, hosts = append(connections, c), append(hosts, newID(ids))
	}
	for i := range o.clients {
		clients = append(clients, &client{
			etcd: connections[i%len(hosts)], host: hosts[i%len(hosts)], volume: newID(ids), instance: newID(ids),
			random: rand.New(rand.NewPCG(o.seed, uint64(i)+1)),
		})
	}
	return clients, closeAll, prepareAll(ctx, clients)
}

// prepareAll prepares all clients at once.
func prepareAll(ctx context.Context, clients []*client) error {
	var wg sync.WaitGroup
	errs := make([]error, len(clients))
	for i, c := range clients {
		wg.Go(func() { errs[i] = c.prepare(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// times are CPU times since their beginnings.
type times struct {
	at                    time.Time
	server, load, machine time.Duration
}

func timesAt(ctx context.Context, at time.Time, server int) (t times, err error) {
	if err := load.Until(ctx, at); err != nil {
		return t, err
	}
	var errs [3]error
	t.at = time.Now()
	t.server, errs[0] = meter.ProcessTime(server)
	t.load, errs[1] = meter.OwnTime()
	t.machine, errs[2] = meter.MachineTime()
	return t, errors.Join(errs[:]...)
}
