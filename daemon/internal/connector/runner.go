// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// PoolConfig is what the configuration of the daemon says of a pool: under nameKey the
// connector, and everything else the options that this gets.
type PoolConfig map[string]string

// The keys that are no options.
const (
	// nameKey is the key of the connector's name.
	nameKey = "connector"
	// copyKey is copyOn in a pool that is asked to copy, if it can.
	copyKey = "copy"
	copyOn  = "on"
	copyOff = "off"
)

// Connector is the name of the connector.
func (c PoolConfig) Connector() string { return c[nameKey] }

// Options are what the connector gets.
func (c PoolConfig) Options() map[string]string {
	options := maps.Clone(map[string]string(c))
	delete(options, nameKey)
	delete(options, copyKey)
	return options
}

// answer is the answer of the connector as far as the configuration lets it count.
func (c PoolConfig) answer(out Answer) Answer {
	if out.Pool != nil && c[copyKey] != copyOn {
		pool := *out.Pool
		pool.Verbs = slices.DeleteFunc(slices.Clone(pool.Verbs), func(verb string) bool { return verb == VerbCopy })
		out.Pool = &pool
	}
	return out
}

// CheckPools refuses pools of a configuration that could not be.
func CheckPools(pools map[string]PoolConfig) error {
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if err := CheckVolumeName(name); err != nil { // a name of a pool has the same letters
			return fmt.Errorf("%.60q is no name of a pool: it has letters, digits and _ . + -", name)
		}
		c := pools[name]
		if c.Connector() == "" {
			return fmt.Errorf("pool %s names no connector", name)
		}
		if err := CheckName(c.Connector()); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
		if text, said := c[copyKey]; said && text != copyOn && text != copyOff {
			return fmt.Errorf("pool %s: %s is %.40q; it can be %s or %s", name, copyKey, text, copyOn, copyOff)
		}
	}
	return nil
}

// Runner runs the connectors of pools. On a volume one changing verb is at work at a time, in the
// order in which they came: a program whose caller has given up or died may still be at work, and
// what undoes that is to come behind it. The zero value of what is not exported is ready.
type Runner struct {
	// Config reads where connectors are installed, and the pools.
	Config func() (dir string, pools map[string]PoolConfig, err error)

	mu sync.Mutex
	// newest is the newest changing verb of a volume that has not ended: closed when it has.
	newest map[string]chan struct{}
}

// Run runs a verb of the connector of a pool; what the request says of options is replaced by
// what the configuration says. Errors are those of the package's Run, and of the configuration.
func (r *Runner) Run(ctx context.Context, pool string, in Request) (Answer, error) {
	dir, pools, err := r.Config()
	if err != nil {
		return Answer{}, err
	}
	c, found := pools[pool]
	if !found {
		return Answer{}, fmt.Errorf("the configuration has no pool %.60q of a connector", pool)
	}
	in.Protocol, in.Pool, in.Options = Protocol, pool, c.Options()
	if err := in.check(); err != nil {
		return Answer{}, err
	}
	path, err := Find(dir, c.Connector())
	if err != nil {
		return Answer{}, err
	}
	release, err := r.turn(ctx, pool, in)
	if err != nil {
		return Answer{}, &BrokenError{Verb: in.Verb, Err: err}
	}
	defer release()
	out, err := Run(ctx, path, in)
	return c.answer(out), err
}

// RunText is Run for another process: what is asked and answered is text. The error is what no
// connector has said.
func (r *Runner) RunText(ctx context.Context, pool string, text []byte) ([]byte, error) {
	var in Request
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	out, err := r.Run(ctx, pool, in)
	var said *Error
	if err != nil {
		if !errors.As(err, &said) {
			return nil, err
		}
		out = Answer{Protocol: Protocol, Error: said}
	}
	return json.Marshal(out)
}

// turn waits until all changing verbs on the volume of a request have ended that came before it.
// Nobody waits for one that only looks: a volume that is being made is neither absent nor there
// until that is over, but it may be looked at by many. An inspection of the pool waits for nothing.
func (r *Runner) turn(ctx context.Context, pool string, in Request) (release func(), err error) {
	leave := func() {}
	if in.Volume == "" {
		return leave, nil
	}
	volume := pool + "/" + in.Volume
	r.mu.Lock()
	before := r.newest[volume]
	if in.Verb != VerbInspect {
		leave = r.enter(volume)
	}
	r.mu.Unlock()
	if before == nil {
		return leave, nil
	}
	select {
	case <-before:
		return leave, nil
	case <-ctx.Done():
		go func() { // who came behind it waits for what is at work all the same
			<-before
			leave()
		}()
		return nil, errors.New("another verb on this volume has not ended")
	}
}

// enter makes a verb the newest one of a volume, until it is released. The caller holds the lock.
func (r *Runner) enter(volume string) (release func()) {
	mine := make(chan struct{})
	if r.newest == nil {
		r.newest = map[string]chan struct{}{}
	}
	r.newest[volume] = mine
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.newest[volume] == mine {
			delete(r.newest, volume)
		}
		close(mine)
	}
}
