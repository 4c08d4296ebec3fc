// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"reflect"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// Registry is the common part of every registry in memory; a test adds its rules. It serves one
// request at a time, under its lock, over a network that can fail. It stores answers by op id, and
// the hosts' epochs. The zero value is ready for use.
type Registry struct {
	sync.Mutex
	Moments *Moments
	Down    bool

	answers map[string]answer
	epochs  map[string]epoch // by host id
}

type answer struct{ asked, value any }

type epoch struct{ fences, known int64 }

var errAway = api.Errorf(api.CodeRegistryUnavailable, "the registry is down")

// SetDown sets Down.
func (r *Registry) SetDown(down bool) { r.With(func() { r.Down = down }) }

// With calls f under the lock.
func (r *Registry) With(f func()) {
	r.Lock()
	defer r.Unlock()
	f()
}

// Ask makes one request; the network may lose its result.
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

// Change makes a change once per op id.
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

// Fence begins a host's next epoch. The host does not know it until Rejoin.
func (r *Registry) Fence(host string) { r.With(func() { r.NextEpoch(host, false) }) }

// Refence fences a host that comes back at once and keeps everything that it had.
func (r *Registry) Refence(host string) { r.With(func() { r.NextEpoch(host, true) }) }

// NextEpoch begins a host's next epoch. known is true if the host knows it. The caller holds the
// lock.
func (r *Registry) NextEpoch(host string, known bool) {
	e := r.epochs[host]
	e.fences++
	r.setEpoch(host, e, known)
}

// Rejoin makes a host know its epoch.
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

// ReportedEpoch returns the epoch that a host knows and sends.
func (r *Registry) ReportedEpoch(host string) int64 {
	r.Lock()
	defer r.Unlock()
	return 1 + r.epochs[host].known
}

// NewestEpoch returns a host's epoch.
func (r *Registry) NewestEpoch(host string) int64 {
	r.Lock()
	defer r.Unlock()
	return r.Newest(host)
}

// SetNewest sets a host's epoch, as a restore from a backup does. The caller holds the lock.
func (r *Registry) SetNewest(host string, newest int64) {
	r.setEpoch(host, epoch{newest - 1, r.epochs[host].known}, false)
}

// Newest returns the same as NewestEpoch. The caller holds the lock.
func (r *Registry) Newest(host string) int64 { return 1 + r.epochs[host].fences }

// CheckEpoch refuses an epoch that is not the host's newest. The caller holds the lock.
func (r *Registry) CheckEpoch(host string, epoch int64) error {
	if newest := r.Newest(host); epoch != newest {
		return api.Errorf(api.CodeStaleEpoch, "the host is in epoch %d", newest).With("epoch", float64(newest))
	}
	return nil
}
