// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Call says who asks for a change, and under which op id.
type Call struct {
	// Who is the caller for the audit trail.
	Who string
	// Caller names the caller for limits that hold for each caller; "" means Who. All calls
	// of one caller have the same name.
	Caller string
	// Key is the Idempotency-Key of the request, "" for none. A key stands for one request:
	// an op that makes several requests gives each its own key. The keys of a host are its
	// own: another host can neither use them up nor get their answers.
	Key string
	// Host is set if a daemon asks for its host, and nil for an operator. The change is
	// refused with stale_epoch if the host has been fenced since, and with not_your_host if
	// it concerns what belongs to another host.
	Host *HostToken
}

// HostToken is a host and the epoch that it believes itself to be in.
type HostToken struct {
	ID    string
	Epoch int64
	// Local says that the daemon came as an administrator of the registry's machine, who
	// may also have guests of other hosts paused.
	Local bool
}

// Administers reports whether the caller may ask for changes to other hosts: an operator may,
// and so may the daemon on the registry's machine.
func (c Call) Administers() bool { return c.Host == nil || c.Host.Local }

// Tx is one change while it is made, with the rules for it.
type Tx struct {
	*ledger.Change
	// Call says who asked for the change.
	Call Call
	// host is the caller, where that is a host.
	host *hostcache.Row
	// cache and hosts belong to the Store.
	cache *rowCache
	hosts *hostcache.Cache
}

func (s *Store) newTx(c *ledger.Change, call Call) *Tx {
	return &Tx{Change: c, Call: call, cache: s.cache, hosts: s.hosts}
}

// callerID is the id of the host that asks, "" for an operator.
func (tx *Tx) callerID() string {
	if tx.host == nil {
		return ""
	}
	return tx.host.ID
}
