// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// The location of an attachment is not stored twice: it is the volume's, or the location that the
// migration has reserved.
const attachmentQuery = "SELECT a.id, a.volume_id, (SELECT name FROM volumes WHERE id = a.volume_id), a.instance_id, i.name, " + instanceHost + `, a.mode, a.device, s.boot_index, a.state,
		a.created_us, a.updated_us, ` + LocationColumns + `
	FROM attachments a
	JOIN slots s ON s.instance_id = a.instance_id AND s.device = a.device
	JOIN instances i ON i.id = a.instance_id
	JOIN hosts h ON h.id = i.host_id
	JOIN locations l ON l.volume_id = a.volume_id AND l.migration_id IS a.migration_id`

// attachmentOrder sorts by age, and the attachment at src before the reserved one at dst.
const attachmentOrder = " ORDER BY a.created_us, a.migration_id IS NOT NULL, a.id"

// AttachmentFilter names the volume or the instance of the requested attachments; an empty
// reference matches all.
type AttachmentFilter struct{ Volume, Instance string }

// Attachments are the attachments of volumes to instances.
type Attachments struct {
	db    *DB
	trail *Trail
}

// Each visits the attachments after a key. Attachments of one volume at one instance, which
// replace each other in a move, share a key. A host sees only its own instances' attachments.
func (s *Attachments) Each(ctx context.Context, filter AttachmentFilter, viewer Viewer, after string, do ledger.Visit[api.Attachment]) error {
	return s.db.view(ctx, func(q ledger.Querier) (err error) {
		if filter.Volume, err = resolveFilter(ctx, q, KindVolume, filter.Volume); err != nil {
			return err
		}
		if filter.Instance, err = resolveFilter(ctx, q, KindInstance, filter.Instance); err != nil {
			return err
		}
		at, err := readKey(after, filter.Volume, filter.Instance, 2)
		if err != nil {
			return err
		}
		read := func(string) (chunk []api.Attachment, more bool, err error) {
			chunk, at, more, err = attachmentsAfter(ctx, q, filter, viewer, at)
			return chunk, more, err
		}
		return ledger.InChunks(after, func(a *api.Attachment) string {
			return writeKey(filter.Volume, filter.Instance, a.VolumeID, a.InstanceID)
		}, read, do)
	})
}

func attachmentsAfter(ctx context.Context, q ledger.Querier, filter AttachmentFilter, viewer Viewer, at []string) (chunk []api.Attachment, last []string, more bool, err error) {
	args := []any{viewer.HostID, filter.Volume, filter.Instance, at[0], at[1]}
	pairs, err := ledger.QueryAll(ctx, q, func(row ledger.Scanner) ([]string, error) {
		pair := make([]string, 2)
		return pair, row.Scan(&pair[0], &pair[1])
	}, viewer.attachedPairsQuery(filter), append(args, ledger.ChunkRows)...)
	if err != nil || len(pairs) == 0 {
		return nil, at, false, err
	}
	last = pairs[len(pairs)-1]
	chunk, err = ledger.QueryAll(ctx, q, scanAttachment, viewer.attachmentsQuery(filter), append(args, last[0], last[1])...)
	return chunk, last, len(pairs) == ledger.ChunkRows, err
}

func (v Viewer) attachedPairsQuery(filter AttachmentFilter) string {
	return "SELECT DISTINCT a.volume_id, a.instance_id FROM attachments a WHERE " + v.attachedAfter(filter) + " ORDER BY a.volume_id, a.instance_id LIMIT ?6"
}

func (v Viewer) attachmentsQuery(filter AttachmentFilter) string {
	return attachmentQuery + " WHERE " + v.attachedAfter(filter) + " AND (a.volume_id, a.instance_id) <= (?6, ?7) ORDER BY a.volume_id, a.instance_id, a.id"
}

// attachedAfter returns the SQL condition for the filter and the key ?4, ?5. It omits empty parts
// of the filter, so that an index serves the others.
func (v Viewer) attachedAfter(filter AttachmentFilter) string {
	condition := v.visible(ownsAttachment) + " AND (a.volume_id, a.instance_id) > (?4, ?5)"
	if filter.Volume != "" {
		condition += " AND a.volume_id = ?2"
	}
	if filter.Instance != "" {
		condition += " AND a.instance_id = ?3"
	}
	return condition
}

// All returns the attachments that Each visits, oldest first.
func (s *Attachments) All(ctx context.Context, volumeRef, instanceRef string, viewer Viewer) ([]api.Attachment, error) {
	all, err := gather(func(do ledger.Visit[api.Attachment]) error {
		return s.Each(ctx, AttachmentFilter{volumeRef, instanceRef}, viewer, "", do)
	})
	slices.SortFunc(all, func(a, b api.Attachment) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

// Get returns the attachment that ref names.
func (s *Attachments) Get(ctx context.Context, ref string, viewer Viewer) (api.Attachment, error) {
	return viewVisible(ctx, s.db, KindAttachment, ref, viewer, AttachmentByID)
}

// AttachmentsAt returns the attachments of an instance.
func AttachmentsAt(ctx context.Context, q ledger.Querier, instanceID string) ([]api.Attachment, error) {
	return ledger.QueryAll(ctx, q, scanAttachment, attachmentQuery+" WHERE a.instance_id = ?"+attachmentOrder, instanceID)
}

// AttachmentByID returns the attachment with the id, or sql.ErrNoRows.
func AttachmentByID(ctx context.Context, q ledger.Querier, id string) (api.Attachment, error) {
	a, err := scanAttachment(q.QueryRowContext(ctx, attachmentQuery+" WHERE a.id = ?", id))
	if err != nil {
		return a, fmt.Errorf("read attachment %s: %w", id, err)
	}
	return a, nil
}

func scanAttachment(row ledger.Scanner) (api.Attachment, error) {
	var (
		a                api.Attachment
		created, updated int64
	)
	err := row.Scan(append([]any{&a.ID, &a.VolumeID, &a.VolumeName, &a.InstanceID, &a.InstanceName, &a.Host, &a.Mode, &a.Device, &a.BootIndex, &a.State, &created, &updated},
		LocationFields(&a.Location)...)...)
	a.CreatedAt, a.UpdatedAt = ledger.FromMicros(created), ledger.FromMicros(updated)
	return a, err
}

type attachment struct {
	api.Attachment
	migrationID string // the migration with the reserved dst, else ""
	opID        string
	exclusive   bool
}

func sameDisk(a, b api.DiskAttachment) bool { return a.Device == b.Device && a.Mode == b.Mode }

func diskDetails(d api.DiskAttachment) map[string]any {
	return map[string]any{"device": d.Device, "mode": d.Mode}
}

func (tx *Tx) insertAttachment(ctx context.Context, a attachment) error {
	_, err := tx.ExecContext(ctx, addAttachmentAt,
		a.ID, a.VolumeID, a.InstanceID, a.Device, a.Mode, a.State, a.exclusive, a.migrationID, a.opID, tx.At.UnixMicro())
	switch {
	case sqlitedb.Violates(err, "attachments.id"):
		return idTaken(a.ID)
	case sqlitedb.Violates(err, "attachments.instance_id", "attachments.device"):
		return api.Errorf(api.CodeConflict, "the device %s of instance %s is taken", a.Device, a.InstanceName)
	case sqlitedb.Violates(err, "attachments.volume_id"):
		return api.Errorf(api.CodeVolumeInUse, "volume %s is attached already and its type is not multiattach", a.VolumeName)
	case err != nil:
		return fmt.Errorf("store attachment: %w", err)
	}
	return nil
}

func idTaken(id string) error {
	return api.Errorf(api.CodeConflict, "there is an attachment with the id %s already", id)
}

const attachmentRowQuery = `SELECT a.id, a.volume_id, a.instance_id, a.mode, a.device, s.boot_index, a.state, a.created_us, a.updated_us,
		COALESCE(a.migration_id, ''), a.op_id, ` + instanceHostID + `, i.name, i.state, i.lock_reason, i.lock_op, v.name, v.generation, COALESCE(m.id, ''), ` + LocationColumns + `
	FROM attachments a
	JOIN slots s ON s.instance_id = a.instance_id AND s.device = a.device
	JOIN instances i ON i.id = a.instance_id
	JOIN volumes v ON v.id = a.volume_id
	JOIN locations l ON l.volume_id = a.volume_id AND l.migration_id IS a.migration_id
	LEFT JOIN migrations m ON m.volume_id = a.volume_id AND ` + MigrationOpen + `
	WHERE a.id = ?`

func (tx *Tx) attachmentRow(ctx context.Context, ref string) (attachmentRow, error) {
	h, err := tx.attachmentRowByID(ctx, ref)
	if !errors.Is(err, sql.ErrNoRows) {
		return h, err
	}
	id, err := Resolve(ctx, tx, KindAttachment, ref)
	if err != nil {
		return h, err
	}
	return tx.attachmentRowByID(ctx, id)
}

func (tx *Tx) attachmentRowByID(ctx context.Context, id string) (attachmentRow, error) {
	if h, ok := tx.cache.attachments[id]; ok {
		return h, nil
	}
	var (
		h                attachmentRow
		created, updated int64
	)
	if err := tx.QueryRowContext(ctx, attachmentRowQuery, id).Scan(append([]any{
		&h.ID, &h.VolumeID, &h.InstanceID, &h.Mode, &h.Device, &h.BootIndex, &h.State, &created, &updated,
		&h.migrationID, &h.opID, &h.hostID, &h.InstanceName, &h.instanceState, &h.lock.reason, &h.lock.op, &h.VolumeName, &h.generation, &h.movedBy,
	}, LocationFields(&h.Location)...)...); err != nil {
		return h, fmt.Errorf("read attachment %s: %w", validate.Clip(id), err)
	}
	h.CreatedAt, h.UpdatedAt = ledger.FromMicros(created), ledger.FromMicros(updated)
	if h.hostID != "" {
		host, err := tx.hostRow(ctx, h.hostID)
		if err != nil {
			return h, err
		}
		h.Host = host.Name
	}
	tx.cache.attachments.put(h)
	return h, nil
}

// attachmentRowOf is attachmentRow, and refuses a change by any host but the attachment's.
func (tx *Tx) attachmentRowOf(ctx context.Context, ref, hostRef string, epoch int64) (attachmentRow, error) {
	hostID, err := tx.CheckHost(ctx, hostRef, epoch)
	if err != nil {
		return attachmentRow{}, err
	}
	h, err := tx.attachmentRow(ctx, ref)
	if err != nil {
		return h, err
	}
	if h.hostID == "" {
		return h, api.Errorf(api.CodeNotYourHost, "the attachment of volume %s to instance %s is no host's: the instance is %s", h.VolumeName, h.InstanceName, h.instanceState)
	}
	if h.hostID != hostID {
		return h, api.Errorf(api.CodeNotYourHost, "the attachment of volume %s to instance %s is host %s's", h.VolumeName, h.InstanceName, h.Host)
	}
	return h, nil
}

func (tx *Tx) auditAttachment(ctx context.Context, h attachmentRow, e api.Event, details map[string]any) error {
	if details == nil {
		details = map[string]any{}
	}
	details["volume_id"], details["volume_name"] = h.VolumeID, h.VolumeName
	details["instance_id"], details["instance_name"] = h.InstanceID, h.InstanceName
	e.Host, e.Object, e.Details, e.Token = h.Host, "attachment/"+h.ID, details, &api.Token{Generation: h.generation}
	return tx.Audit(ctx, e)
}
