// SPDX-License-Identifier: Apache-2.0

package store

// maxHeld bounds how many attachments are held.
const maxHeld = 4096

// heldCache holds attachments for the writer as heldAttachmentQuery gives them: a
// daemon makes several changes of one after the other, and to read it is the
// better part of the price of each. No attachment with a migration is in it.
//
// Every statement empties it, whatever it changes, but those of keepsHeld. So does
// whatever undoes a change.
type heldCache map[string]heldAttachment

// The statements of attach and detach. Each changes nothing that another attachment
// than its own is read with, and whoever uses it says what became of that one.
const (
	addSlot         = "INSERT INTO slots (instance_id, device, boot_index, note) VALUES (?, ?, NULL, '')"
	moveAttachment  = "UPDATE attachments SET state = ?, op_id = ?, updated_us = ? WHERE id = ?"
	touchVolume     = "UPDATE volumes SET updated_us = ? WHERE id = ?"
	removeSlot      = "DELETE FROM slots WHERE instance_id = ? AND device = ?"
	addEventRow     = "INSERT INTO events (seq, content, hash) VALUES (?, ?, ?)"
	keepAnswer      = "INSERT INTO idempotency (key, request, response, at_us) VALUES (?, ?, ?, ?)"
	addAttachmentAt = `INSERT INTO attachments
		(id, volume_id, instance_id, device, mode, state, exclusive, migration_id, op_id, created_us, updated_us)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULLIF(?8, ''), ?9, ?10, ?10)`
)

var keepsHeld = map[string]bool{addSlot: true, moveAttachment: true, touchVolume: true, removeSlot: true, addEventRow: true, keepAnswer: true, addAttachmentAt: true}

// put notes an attachment as it is stored now.
func (c heldCache) put(h heldAttachment) {
	if len(c) >= maxHeld {
		clear(c)
	}
	if h.migrationID == "" && h.movedBy == "" {
		c[h.ID] = h
	}
}
