// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
)

// rowCache holds rows that the writer reads in almost every change. It is what changes
// see: rows as of what was done so far in the running transaction. See ledger.Cache.
type rowCache struct {
	hosts       hostRows
	attachments attachmentCache
}

func newRowCache() *rowCache {
	return &rowCache{hosts: hostRows{byID: map[string]hostcache.Row{}, byName: map[string]hostcache.Row{}}, attachments: attachmentCache{}}
}

// BeforeExec drops the rows that a statement may change.
func (c *rowCache) BeforeExec(query string) {
	if !keepsAttachments[query] {
		clear(c.attachments)
	}
}

// Undo drops the rows that the undone change may have brought in.
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

// hostRows are rows of hosts. Whoever changes one calls invalidate.
type hostRows struct {
	byID   map[string]hostcache.Row
	byName map[string]hostcache.Row
	// behind are the hosts that are behind, once they were looked up.
	behind      []hostcache.Row
	behindKnown bool
	// changed says that they may be of a change which is not over.
	changed bool
}

func (h *hostRows) clear() {
	clear(h.byID)
	clear(h.byName)
	h.behind, h.behindKnown, h.changed = nil, false, false
}

// invalidate is called before a change of a host.
func (h *hostRows) invalidate() {
	h.clear()
	h.changed = true
}

// maxAttachments bounds how many attachments are cached.
const maxAttachments = 4096

// attachmentCache holds attachments by their ids, as attachmentRowQuery reads them: a
// daemon makes several changes of an attachment one after the other, and reading it is most
// of the price of each. It has no attachment with a migration.
//
// Every statement empties it, whatever the statement changes, except those in
// keepsAttachments. A change that is undone empties it too.
type attachmentCache map[string]attachmentRow

// The statements of attach and detach. Each changes nothing that another attachment
// than its own is read with, and whoever uses it says what became of that one.
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

// put notes an attachment as it is stored now.
func (c attachmentCache) put(h attachmentRow) {
	if len(c) >= maxAttachments {
		clear(c)
	}
	if h.migrationID == "" && h.movedBy == "" {
		c[h.ID] = h
	}
}

// attachmentRow is an attachment with what the rules of its changes need.
type attachmentRow struct {
	api.Attachment
	migrationID   string // of a reserved dst, else ""
	opID          string
	hostID        string // "" where no host has its instance
	instanceState api.InstanceState
	lock          instanceLock
	generation    int64
	movedBy       string // the open migration of its volume, "" if there is none
}
