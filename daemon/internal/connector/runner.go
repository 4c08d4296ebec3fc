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

// PoolConfig is the daemon's configuration of a pool: the connector under nameKey, and the
// connector's options under all other keys.
type PoolConfig map[string]string

// The keys of a PoolConfig that are no options. The pool offers the verb copy if copyKey is
// copyOn.
const (
	nameKey = "connector"
	copyKey = "copy"
	copyOn  = "on"
	copyOff = "off"
)

// Connector returns the name of the connector.
func (c PoolConfig) Connector() string { return c[nameKey] }

// Options returns the options of the connector.
func (c PoolConfig) Options() map[string]string {
	options := maps.Clone(map[string]string(c))
	delete(options, nameKey)
	delete(options, copyKey)
	return options
}

func (c PoolConfig) answer(out Answer) Answer {
	if out.Pool != nil && c[copyKey] != copyOn {
		pool := *out.Pool
		pool.Verbs = slices.DeleteFunc(slices.Clone(pool.Verbs), func(verb string) bool { return verb == VerbCopy })
		out.Pool = &pool
	}
	return out
}

// CheckPools refuses invalid pools of a configuration.
func CheckPools(pools map[string]PoolConfig) error {
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if err := CheckVolumeName(name); err != nil {
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

// Runner runs the connectors of pools. A volume has one changing verb at a time, in the order of
// the calls: a program may outlast its caller, and the verb that undoes its work must wait for it.
type Runner struct {
	// Config returns the directory of connectors, and the pools.
	Config func() (dir string, pools map[string]PoolConfig, err error)

	mu sync.Mutex
	// newest has, for each volume, a channel that is closed when its newest unfinished changing
	// verb has ended.
	newest map[string]chan struct{}
}

// Run runs a verb of the connector of a pool; the configuration's options replace the request's.
// Errors come from the package's Run, and from the configuration.
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

// RunText is Run with request and answer as text. An error of the connector is in the answer.
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

// turn waits until all earlier changing verbs on the request's volume have ended. An inspection of
// a volume waits too, since an unfinished volume is neither absent nor complete, but no verb waits
// for an inspection.
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
		go func() { // later callers still wait for the running verb
			<-before
			leave()
		}()
		return nil, errors.New("another verb on this volume has not ended")
	}
}

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
