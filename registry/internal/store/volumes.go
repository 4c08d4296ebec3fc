// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Volumes has the volumes, with their sizes and locations.
type Volumes struct{ db *DB }

// Each visits the volumes after a key, with all their attachments. A host sees only its own
// volumes.
func (s *Volumes) Each(ctx context.Context, viewer Viewer, after string, do ledger.Visit[api.Volume]) error {
	return s.db.view(ctx, func(q ledger.Querier) error {
		read := func(after string) ([]api.Volume, bool, error) { return volumesAfter(ctx, q, viewer, after) }
		return ledger.InChunks(after, func(v *api.Volume) string { return v.ID }, read, do)
	})
}

func volumesAfter(ctx context.Context, q ledger.Querier, viewer Viewer, after string) (volumes []api.Volume, more bool, err error) {
	volumes, err = ledger.QueryAll(ctx, q, scanVolume, viewer.volumesQuery(), viewer.HostID, after, ledger.ChunkRows)
	if err != nil || len(volumes) == 0 {
		return nil, false, err
	}
	last := volumes[len(volumes)-1].ID
	attachments, err := ledger.QueryAll(ctx, q, scanAttachment, viewer.attachmentsOfVolumesQuery(), viewer.HostID, after, last)
	if err != nil {
		return nil, false, err
	}
	of := map[string][]api.Attachment{}
	for _, a := range attachments {
		of[a.VolumeID] = append(of[a.VolumeID], a)
	}
	for i := range volumes {
		attach(&volumes[i], of[volumes[i].ID])
	}
	return volumes, len(volumes) == ledger.ChunkRows, nil
}

func (v Viewer) volumesQuery() string {
	return volumeQuery + " WHERE v.id > ?2 AND " + v.visible(ownsVolume) + " ORDER BY v.id LIMIT ?3"
}

func (v Viewer) attachmentsOfVolumesQuery() string {
	return attachmentQuery + " JOIN volumes v ON v.id = a.volume_id WHERE a.volume_id > ?2 AND a.volume_id <= ?3 AND " + v.visible(ownsVolume) + attachmentOrder
}

// All returns every volume, by name, as Each visits them.
func (s *Volumes) All(ctx context.Context, viewer Viewer) ([]api.Volume, error) {
	all, err := gather(func(do ledger.Visit[api.Volume]) error { return s.Each(ctx, viewer, "", do) })
	slices.SortFunc(all, func(a, b api.Volume) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// Get returns the volume that ref names.
func (s *Volumes) Get(ctx context.Context, ref string, viewer Viewer) (api.Volume, error) {
	return viewVisible(ctx, s.db, KindVolume, ref, viewer, volumeByID)
}

// attach sets a volume's attachments, and the status and time that follow from them: an available
// volume with attachments is reserved or in-use.
func attach(v *api.Volume, attachments []api.Attachment) {
	v.Attachments = append(v.Attachments, attachments...)
	for _, a := range attachments {
		if a.UpdatedAt.After(v.UpdatedAt) {
			v.UpdatedAt = a.UpdatedAt
		}
	}
	if len(v.Attachments) > 0 && v.Status == api.VolumeAvailable {
		v.Status = api.VolumeReserved
		for _, a := range v.Attachments {
			if a.State != api.AttachmentReserved {
				v.Status = api.VolumeInUse
			}
		}
	}
	if v.ResizeOpID != "" {
		v.Status = api.VolumeResizing
	}
}

// Volume returns the volume that ref names, as the change has left it so far.
func (tx *Tx) Volume(ctx context.Context, ref string) (api.Volume, error) {
	id, err := Resolve(ctx, tx, KindVolume, ref)
	if err != nil {
		return api.Volume{}, err
	}
	return volumeByID(ctx, tx, id)
}

// OwnVolume returns the volume that ref names. It refuses a host that does not own the volume;
// verb names the change.
func (tx *Tx) OwnVolume(ctx context.Context, ref, verb string) (api.Volume, error) {
	v, err := tx.Volume(ctx, ref)
	if err != nil {
		return v, err
	}
	return v, tx.CheckOwn(ctx, KindVolume, v.ID, verb, v.Name)
}

const volumeQuery = `SELECT v.id, v.name, v.status, t.name, t.multiattach, v.bootable, v.generation, h.name, COALESCE(m.id, ''),
		v.created_us, v.updated_us, v.size_changed_us, v.resize_op, v.adopted_path <> '', ` + LocationColumns + `
	FROM volumes v
	JOIN volume_types t ON t.id = v.type_id
	JOIN hosts h ON h.id = v.host_id
	JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL
	LEFT JOIN migrations m ON m.volume_id = v.id AND ` + MigrationOpen

func volumeByID(ctx context.Context, q ledger.Querier, id string) (api.Volume, error) {
	v, err := scanVolume(q.QueryRowContext(ctx, volumeQuery+" WHERE v.id = ?", id))
	if err != nil {
		return v, fmt.Errorf("read volume %s: %w", id, err)
	}
	attachments, err := ledger.QueryAll(ctx, q, scanAttachment, attachmentQuery+" WHERE a.volume_id = ?"+attachmentOrder, id)
	attach(&v, attachments)
	return v, err
}

func scanVolume(row ledger.Scanner) (api.Volume, error) {
	var (
		v                api.Volume
		created, updated int64
		resized          int64
	)
	err := row.Scan(append([]any{
		&v.ID, &v.Name, &v.Status, &v.Type, &v.Multiattach, &v.Bootable, &v.Generation, &v.Host, &v.MigrationID,
		&created, &updated, &resized, &v.ResizeOpID, &v.Adopted,
	}, LocationFields(&v.Location)...)...)
	v.SizeBytes = v.Location.SizeBytes
	v.Attachments = []api.Attachment{}
	v.CreatedAt, v.UpdatedAt = ledger.FromMicros(created), ledger.FromMicros(updated)
	if resized != 0 {
		v.SizeChangedAt = new(ledger.FromMicros(resized))
	}
	return v, err
}

func (tx *Tx) auditVolume(ctx context.Context, v api.Volume, e api.Event, details map[string]any) error {
	if details == nil {
		details = map[string]any{}
	}
	details["name"] = v.Name
	e.Host, e.Object, e.Details, e.Token = v.Host, "volume/"+v.ID, details, &api.Token{Generation: v.Generation}
	return tx.Audit(ctx, e)
}
