// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Call identifies the caller of a change and the request.
type Call struct {
	// Who names the caller in the audit trail.
	Who string
	// Caller names the caller for limits, the same in all its calls. "" means Who.
	Caller string
	// Key is the Idempotency-Key of the request, "" for none. An op with several requests has a
	// key for each. Each host has its own namespace of keys.
	Key string
	// Host is the calling daemon's host, nil for an operator. The store refuses the change with
	// stale_epoch if the host has been fenced since, and with not_your_host if the object is
	// another host's.
	Host *HostToken
}

// HostToken is a host with the epoch that the host believes is its own.
type HostToken struct {
	ID    string
	Epoch int64
	// Local means that the daemon connected as an administrator of the registry's machine, who may
	// also pause guests of other hosts.
	Local bool
}

// Administers reports whether the caller may change other hosts: an operator, or the daemon on the
// registry's machine.
func (c Call) Administers() bool { return c.Host == nil || c.Host.Local }

// Tx is a change in progress, with the checks that all changes share.
type Tx struct {
	*ledger.Change
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
