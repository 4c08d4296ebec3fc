// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"reflect"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// Registry is what every registry in memory has, whatever rules a test adds to it: one
// request at a time, a network that can fail, answers that are kept by op id, and the
// epochs of hosts. Its lock is held while a request is answered. The zero value is
// ready.
type Registry struct {
	sync.Mutex
	Moments *Moments
	// Down: it does not answer.
	Down bool

	answers map[string]answer
	epochs  map[string]epoch // by host id
}

// answer is what a change was answered, and what had been asked.
type answer struct{ asked, value any }

// epoch counts the fences of a host, and those that it knows of.
type epoch struct{ fences, known int64 }

var errAway = api.Errorf(api.CodeRegistryUnavailable, "the registry is down")

// SetDown makes the registry unreachable, or reachable again.
func (r *Registry) SetDown(down bool) { r.With(func() { r.Down = down }) }

// With holds the registry for the time of f.
func (r *Registry) With(f func()) {
	r.Lock()
	defer r.Unlock()
	f()
}

// Ask is one request.
func Ask[T any](r *Registry, name string, reply func() (T, error)) (v T, err error) {
	err = r.Moments.Call(name, errAway, func() (err error) {
		r.Lock()
		defer r.Unlock()
		if r.Down {
			return errAway
		}
		v, err = reply()
		return err
	})
	return v, err
}

// Change is a request that makes a change, once per op id.
func Change[T any](r *Registry, name, opID string, asked any, change func() (T, error)) (T, error) {
	return Ask(r, name, func() (v T, err error) {
		if old, known := r.answers[opID]; known {
			if !reflect.DeepEqual(old.asked, asked) {
				return v, api.Errorf(api.CodeIdempotencyMismatch, "op id %s was used for another request", opID)
			}
			v, _ = old.value.(T)
			return v, nil
		}
		if v, err = change(); err == nil {
			if r.answers == nil {
				r.answers = map[string]answer{}
			}
			r.answers[opID] = answer{asked, v}
		}
		return v, err
	})
}

// Fence begins a new epoch of a host, which it does not know of until Rejoin.
func (r *Registry) Fence(host string) { r.With(func() { r.NextEpoch(host, false) }) }

// Refence is a fence after which the host is back at once, with all that it had.
func (r *Registry) Refence(host string) { r.With(func() { r.NextEpoch(host, true) }) }

// NextEpoch begins a new epoch of a host, which it knows of or not. The caller holds the
// lock.
func (r *Registry) NextEpoch(host string, known bool) {
	e := r.epochs[host]
	e.fences++
	r.setEpoch(host, e, known)
}

// Rejoin is a host that has come back, and knows its epoch.
func (r *Registry) Rejoin(host string) { r.With(func() { r.setEpoch(host, r.epochs[host], true) }) }

func (r *Registry) setEpoch(host string, e epoch, known bool) {
	if known {
		e.known = e.fences
	}
	if r.epochs == nil {
		r.epochs = map[string]epoch{}
	}
	r.epochs[host] = e
}

// ReportedEpoch is the epoch that a host believes to be in, and names in its requests.
func (r *Registry) ReportedEpoch(host string) int64 {
	r.Lock()
	defer r.Unlock()
	return 1 + r.epochs[host].known
}

// NewestEpoch is the epoch of a host.
func (r *Registry) NewestEpoch(host string) int64 {
	r.Lock()
	defer r.Unlock()
	return r.Newest(host)
}

// SetNewest has a host be in an epoch, as a registry does that was restored from a backup.
// The caller holds the lock.
func (r *Registry) SetNewest(host string, newest int64) {
	r.setEpoch(host, epoch{newest - 1, r.epochs[host].known}, false)
}

// Newest is NewestEpoch for who holds the lock.
func (r *Registry) Newest(host string) int64 { return 1 + r.epochs[host].fences }

// CheckEpoch refuses what comes from another epoch of a host than the newest. The caller
// holds the lock.
func (r *Registry) CheckEpoch(host string, epoch int64) error {
	if newest := r.Newest(host); epoch != newest {
		return api.Errorf(api.CodeStaleEpoch, "the host is in epoch %d", newest).With("epoch", float64(newest))
	}
	return nil
}
