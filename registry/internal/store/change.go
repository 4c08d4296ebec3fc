// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Call identifies the caller of a change, and the op id.
type Call struct {
	// Who names the caller in the audit trail.
	Who string
	// Caller names the caller for limits per caller; "" means Who. It is the same for all calls of
	// one caller.
	Caller string
	// Key is the Idempotency-Key of the request, "" for none. An op that makes several requests
	// gives each its own key. The keys of one host are separate from another's.
	Key string
	// Host is the calling daemon's host, nil for an operator. The store refuses the change with
	// stale_epoch if the host has been fenced since, and with not_your_host if the object is
	// another host's.
	Host *HostToken
}

// HostToken is a host and the epoch that the host believes to be its own.
type HostToken struct {
	ID    string
	Epoch int64
	// Local means that the daemon connected as an administrator of the registry's machine. It may
	// then also pause guests of other hosts.
	Local bool
}

// Administers reports whether the caller may change other hosts: an operator, or the daemon on the
// registry's machine.
func (c Call) Administers() bool { return c.Host == nil || c.Host.Local }

// Tx is a change in progress, with the rules for it.
type Tx struct {
	*ledger.Change
	// Call identifies the caller of the change.
	Call  Call
	host  *hostcache.Row
	cache *rowCache
	hosts *hostcache.Cache
}

func (s *DB) newTx(c *ledger.Change, call Call) *Tx {
	return &Tx{Change: c, Call: call, cache: s.cache, hosts: s.hosts}
}

func (tx *Tx) callerID() string {
	if tx.host == nil {
		return ""
	}
	return tx.host.ID
}
