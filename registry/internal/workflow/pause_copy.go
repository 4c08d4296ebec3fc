// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// SetCopy records the state of the copy host's work: the attempt, the src or dst that it must
// still remove (dropEnd), and its error. It returns conflict if the phase has changed.
func (s *Pauses) SetCopy(ctx context.Context, call store.Call, id string, phase PausePhase, attempt int, dropEnd string, why *api.Error) (Pause, error) {
	return s.change(ctx, call, id, "migration.pause_copy", []any{phase, attempt, dropEnd, why}, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(phase); err != nil {
			return err
		}
		if attempt < p.Attempt || dropEnd != "" && dropEnd != p.DropEnd {
			return api.Errorf(api.CodeConflict, "the copy host of migration %s was asked anew meanwhile", p.Migration.ID)
		}
		if p.DropEnd == api.DropDst && dropEnd == "" && p.Live != nil && !p.LiveReady() {
			return p.notReady()
		}
		fail, err := encodeError(why)
		if err != nil {
			return err
		}
		if err := tx.Exec(ctx, "UPDATE pauses SET attempt = ?, drop_end = ?, error = ? WHERE migration_id = ?", attempt, dropEnd, fail, p.Migration.ID); err != nil {
			return err
		}
		if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.copy_host", From: p.DropEnd, To: dropEnd},
			map[string]any{"phase": p.Phase, "attempt": attempt, "error": why}); err != nil {
			return err
		}
		return tx.settlePauseState(ctx, p.Migration.ID)
	})
}

// Flip is the commit point: the volume and all its attachments are now at dst, in the volume's
// next generation. Src stays reserved until the move ends.
func (s *Pauses) Flip(ctx context.Context, call store.Call, id string, dst api.Location) (Pause, error) {
	if err := validate.Location("destination", dst); err != nil {
		return Pause{}, err
	}
	return s.change(ctx, call, id, "migration.pause_flip", dst, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.mayFlip(); err != nil {
			return err
		}
		if err := tx.flipPause(ctx, p, dst); err != nil {
			return err
		}
		drop := ""
		if p.Request.DeleteSource {
			drop = api.DropSrc
		}
		return tx.setPhase(ctx, p, PauseRestoring, drop, nil)
	})
}

func (tx *changeTx) flipPause(ctx context.Context, p Pause, dst api.Location) error {
	if err := tx.checkReservedDst(ctx, p, dst); err != nil {
		return err
	}
	if err := tx.MoveReservation(ctx, p.Migration, dst); err != nil {
		return err
	}
	var scope string
	if err := tx.QueryRowContext(ctx, "SELECT scope FROM locations WHERE volume_id = ? AND migration_id IS NULL", p.Migration.VolumeID).Scan(&scope); err != nil {
		return fmt.Errorf("read scope of src: %w", err)
	}
	if err := tx.Flip(ctx, p.Migration); err != nil {
		return err
	}
	return tx.ExecAll(ctx,
		store.InsertLocation(p.Migration.VolumeID, p.Migration.ID, scope, p.Migration.Src),
		ledger.SQL("UPDATE attachments SET updated_us = ? WHERE volume_id = ?", tx.At.UnixMicro(), p.Migration.VolumeID),
	)
}

func (p Pause) mayFlip() error {
	if p.Live == nil {
		return p.checkPhase(PauseCopying)
	}
	if err := p.checkPhase(PauseSaving); err != nil {
		return err
	}
	if !p.LiveReady() {
		return p.notReady()
	}
	for _, g := range p.Instances {
		if g.State != PauseSaved {
			return api.Errorf(api.CodeConflict, "instance %s is %s, not %s", g.Name, g.State, PauseSaved)
		}
	}
	return nil
}

// checkReservedDst refuses any dst except the reserved one: the other hosts restore their guests
// with the reserved dst. In a pool, the path must be the reserved name in the pool's directory, on
// the copy host and on each guest's host.
func (tx *changeTx) checkReservedDst(ctx context.Context, p Pause, dst api.Location) error {
	want := p.Migration.Dst
	if dst.Pool != want.Pool || dst.Name != want.Name || dst.Format != want.Format || dst.SizeBytes != want.SizeBytes || dst.ImageBytes != want.ImageBytes || want.Pool == "" && dst.Path != want.Path {
		return api.Errorf(api.CodeChainChanged, "host %s has copied volume %s to %s (%s, %d bytes), and its place was to be %s (%s, %d bytes)",
			p.CopyHost.Name, p.Migration.VolumeName, store.Place(dst), dst.Format, dst.SizeBytes, store.Place(want), want.Format, want.SizeBytes)
	}
	if want.Pool == "" {
		return nil
	}
	hosts := []PauseHost{p.CopyHost}
	for _, g := range p.Instances {
		hosts = append(hosts, g.Host)
	}
	for _, h := range hosts {
		var dir string
		if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(path), '') FROM pools WHERE host_id = ? AND name = ?", h.ID, want.Pool).Scan(&dir); err != nil {
			return fmt.Errorf("look up pool: %w", err)
		}
		if at := filepath.Join(dir, want.Name); dst.Path != at || dir == "" {
			return api.Errorf(api.CodeChainChanged, "host %s has copied volume %s to %s, and on host %s the volume %s of pool %s is %s",
				p.CopyHost.Name, p.Migration.VolumeName, dst.Path, h.Name, want.Name, want.Pool, at)
		}
	}
	return nil
}
