// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
)

// rowCache caches rows that the writer reads in almost every change, as of the running transaction.
// See ledger.Cache.
type rowCache struct {
	hosts       hostRows
	attachments attachmentCache
}

func newRowCache() *rowCache {
	return &rowCache{hosts: hostRows{byID: map[string]hostcache.Row{}, byName: map[string]hostcache.Row{}}, attachments: attachmentCache{}}
}

// BeforeExec drops the rows that the statement may change.
func (c *rowCache) BeforeExec(query string) {
	if !keepsAttachments[query] {
		clear(c.attachments)
	}
}

// Undo drops the rows that the undone change may have cached.
func (c *rowCache) Undo() {
	if c.hosts.changed {
		c.hosts.clear()
	}
	clear(c.attachments)
}

// Reset empties the cache, so that the stored rows are read again.
func (c *rowCache) Reset() {
	c.hosts.clear()
	clear(c.attachments)
}

// hostRows caches rows of hosts. Call invalidate before a change of a host.
type hostRows struct {
	byID   map[string]hostcache.Row
	byName map[string]hostcache.Row
	// behind has the hosts that have not rejoined since a restore. It is valid only with
	// behindKnown.
	behind      []hostcache.Row
	behindKnown bool
	// changed means that the rows may come from an uncommitted change.
	changed bool
}

func (h *hostRows) clear() {
	clear(h.byID)
	clear(h.byName)
	h.behind, h.behindKnown, h.changed = nil, false, false
}

func (h *hostRows) invalidate() {
	h.clear()
	h.changed = true
}

const maxAttachments = 4096

// attachmentCache caches attachments without a migration by id, as attachmentRowQuery reads them.
// A daemon changes one attachment several times in succession, and the read is most of each
// change's cost.
//
// Every statement except those in keepsAttachments empties the cache.
type attachmentCache map[string]attachmentRow

// These statements, for attach and detach, do not change the cached rows of other attachments. The
// caller must update the cache for its own attachment.
const (
	addSlot         = "INSERT INTO slots (instance_id, device, boot_index, note) VALUES (?, ?, NULL, '')"
	moveAttachment  = "UPDATE attachments SET state = ?, op_id = ?, updated_us = ? WHERE id = ?"
	touchVolume     = "UPDATE volumes SET updated_us = ? WHERE id = ?"
	removeSlot      = "DELETE FROM slots WHERE instance_id = ? AND device = ?"
	addAttachmentAt = `INSERT INTO attachments
		(id, volume_id, instance_id, device, mode, state, exclusive, migration_id, op_id, created_us, updated_us)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULLIF(?8, ''), ?9, ?10, ?10)`
)

var keepsAttachments = map[string]bool{addSlot: true, moveAttachment: true, touchVolume: true, removeSlot: true, addAttachmentAt: true}

func (c attachmentCache) put(h attachmentRow) {
	if len(c) >= maxAttachments {
		clear(c)
	}
	if h.migrationID == "" && h.movedBy == "" {
		c[h.ID] = h
	}
}

type attachmentRow struct {
	api.Attachment
	migrationID   string // the migration with the reserved dst, else ""
	opID          string
	hostID        string // "" if no host has its instance
	instanceState api.InstanceState
	lock          instanceLock
	generation    int64
	movedBy       string // the open migration of its volume, "" if none
}
