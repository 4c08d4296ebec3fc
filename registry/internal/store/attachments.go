// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Where an attachment is connected to is not stored twice: it is the place of
// its volume, or what its migration has reserved.
const attachmentQuery = "SELECT a.id, a.volume_id, (SELECT name FROM volumes WHERE id = a.volume_id), a.instance_id, i.name, " + instanceHost + `, a.mode, a.device, s.boot_index, a.state,
		a.created_us, a.updated_us, ` + LocationColumns + `
	FROM attachments a
	JOIN slots s ON s.instance_id = a.instance_id AND s.device = a.device
	JOIN instances i ON i.id = a.instance_id
	JOIN hosts h ON h.id = i.host_id
	JOIN locations l ON l.volume_id = a.volume_id AND l.migration_id IS a.migration_id`

// attachmentOrder puts the one that is in use before the dst of its migration.
const attachmentOrder = " ORDER BY a.created_us, a.migration_id IS NOT NULL, a.id"

// Attachments returns the attachments of the volume and at the instance that
// the references name; an empty reference is any. A host finds its own.
func (s *Store) Attachments(ctx context.Context, volumeRef, instanceRef string, viewer Viewer) ([]api.Attachment, error) {
	return ledger.View(ctx, s.db.Read, func(q ledger.Querier) ([]api.Attachment, error) {
		query, args := attachmentQuery+" WHERE "+viewer.visible(ownsAttachment), []any{viewer.HostID}
		for _, filter := range []struct {
			kind   Kind
			ref    string
			column string
		}{{KindVolume, volumeRef, "a.volume_id"}, {KindInstance, instanceRef, "a.instance_id"}} {
			if filter.ref == "" {
				continue
			}
			id, err := Resolve(ctx, q, filter.kind, filter.ref)
			if err != nil {
				return nil, err
			}
			args = append(args, id)
			query += fmt.Sprintf(" AND %s = ?%d", filter.column, len(args))
		}
		return ledger.QueryAll(ctx, q, scanAttachment, query+attachmentOrder, args...)
	})
}

// resolveFilter is resolve for a reference that may be missing.
func resolveFilter(ctx context.Context, q ledger.Querier, k Kind, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	return Resolve(ctx, q, k, ref)
}

// Attachment returns the attachment that ref names.
func (s *Store) Attachment(ctx context.Context, ref string, viewer Viewer) (api.Attachment, error) {
	return viewVisible(ctx, s, KindAttachment, ref, viewer, AttachmentByID)
}

// AttachmentsAt reads the attachments of an instance.
func AttachmentsAt(ctx context.Context, q ledger.Querier, instanceID string) ([]api.Attachment, error) {
	return ledger.QueryAll(ctx, q, scanAttachment, attachmentQuery+" WHERE a.instance_id = ?"+attachmentOrder, instanceID)
}

// AttachmentByID reads an attachment, sql.ErrNoRows if there is none.
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

// attachment is what the row of an attachment holds beyond its key.
type attachment struct {
	id, volumeID, instanceID, device string
	volumeName, instanceName         string // for people
	migrationID                      string // of a reserved dst, else ""
	opID                             string
	mode                             api.Mode
	state                            api.AttachmentState
	exclusive                        bool
}

func (tx *Tx) insertAttachment(ctx context.Context, a attachment) error {
	_, err := tx.ExecContext(ctx, addAttachmentAt,
		a.id, a.volumeID, a.instanceID, a.device, a.mode, a.state, a.exclusive, a.migrationID, a.opID, tx.At.UnixMicro())
	switch {
	case sqlitedb.Violates(err, "attachments.id"):
		return idTaken(a.id)
	case sqlitedb.Violates(err, "attachments.instance_id", "attachments.device"):
		return api.Errorf(api.CodeConflict, "the device %s of instance %s is taken", a.device, a.instanceName)
	case sqlitedb.Violates(err, "attachments.volume_id"):
		return api.Errorf(api.CodeVolumeInUse, "volume %s is attached already and its type is not multiattach", a.volumeName)
	case err != nil:
		return fmt.Errorf("store attachment: %w", err)
	}
	return nil
}

func idTaken(id string) error {
	return api.Errorf(api.CodeConflict, "there is an attachment with the id %s already", id)
}
