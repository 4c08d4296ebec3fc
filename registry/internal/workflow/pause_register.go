// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Register begins a move of a volume with all guests paused. In one transaction it locks the
// volume, reserves dst, and locks every instance with the volume. present has the ids of the
// connected hosts: it must have the hosts of all these instances. One of these hosts copies. A
// calling host must have all these instances (CheckGuest).
func (s *Pauses) Register(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string) (api.Migration, error) {
	in.PauseAll = true // whatever the caller has set
	return s.register(ctx, call, ref, in, present, allPaused)
}

// A kind is one of the two kinds of Pause: with all guests paused, or live.
type kind struct {
	method                string
	what, manner, request string
	admits                func(v api.Volume) error
}

var allPaused = kind{
	method: api.MethodSave, what: "migration.pause_all", manner: "with all guests paused", request: "pause_all",
	admits: func(api.Volume) error { return nil },
}

func (s *Pauses) register(ctx context.Context, call store.Call, ref string, in api.MigrationTarget, present []string, k kind) (api.Migration, error) {
	if err := checkPauseTarget(in); err != nil {
		return api.Migration{}, err
	}
	out, err := mutate(ctx, s.db, call, k.what, []any{ref, in}, func(ctx context.Context, tx *changeTx) (api.Migration, error) {
		v, err := tx.Volume(ctx, ref)
		if err != nil {
			return api.Migration{}, err
		}
		if !call.Administers() {
			if err := tx.CheckOwn(ctx, store.KindVolume, v.ID, "migrate", v.Name); err != nil {
				return api.Migration{}, err
			}
		}
		if err := checkOtherLocation(v, in); err != nil {
			return api.Migration{}, err
		}
		if in.ToPool != "" {
			if err := store.CheckPoolKnown(ctx, tx, in.ToPool); err != nil {
				return api.Migration{}, err
			}
		}
		guests, err := tx.guestsToPause(ctx, v, present, k)
		if err != nil {
			return api.Migration{}, err
		}
		id := uuid.NewString()
		dst := pauseDst(v, id, in)
		t, err := tx.TargetType(ctx, v, api.MigrationRegister{ToType: in.ToType, Dst: dst})
		if err != nil {
			return api.Migration{}, err
		}
		for _, g := range guests {
			if err := cmp.Or(tx.checkGuestReaches(ctx, v, t, g, dst), k.admits(v)); err != nil {
				return api.Migration{}, err
			}
		}
		if err := tx.insertPause(ctx, v, t, id, in, dst, guests, k); err != nil {
			return api.Migration{}, err
		}
		m, err := store.MigrationByID(ctx, tx, id)
		if err != nil {
			return m, err
		}
		return m, tx.AuditMigration(ctx, m, api.Event{What: "migration.register", To: string(m.State), OpID: id, Token: &api.Token{Generation: v.Generation}},
			map[string]any{"src": m.Src, "dst": m.Dst, "to_type": in.ToType, "pause_all": in.PauseAll, "method": k.method, "instances": len(guests)})
	})
	if err == nil {
		s.changed.Announce()
	}
	return out, err
}

// CheckGuest refuses a calling host if the guest is on another host.
func CheckGuest(call store.Call, verb string, g PauseInstance) error {
	if call.Administers() || call.Host.ID == g.Host.ID {
		return nil
	}
	return api.Errorf(api.CodeNotYourHost, "cannot %s: instance %s is on host %s, and a host may have its own guests paused only; "+
		"ask the registry: `volferryctl --socket https://REGISTRY:7643` with the certificate of an operator, or at its own socket", verb, g.Name, g.Host.Name).
		With("instance_id", g.ID)
}

func checkPauseTarget(in api.MigrationTarget) error {
	if err := cmp.Or(validate.Text("pool", in.ToPool), validate.Text("type", in.ToType), validate.Text("path", in.ToPath)); err != nil {
		return err
	}
	return in.Check()
}

// checkOtherLocation refuses a move to the volume's present pool. The copy host would refuse it
// only after all guests are paused.
func checkOtherLocation(v api.Volume, in api.MigrationTarget) error {
	if in.ToPool == "" || in.ToPool != v.Location.Pool || cmp.Or(in.ToFormat, v.Location.Format) != v.Location.Format {
		return nil
	}
	return api.Errorf(api.CodeSameLocation, "cannot migrate volume %s: it is in pool %s already", v.Name, in.ToPool)
}

// pauseDst returns the destination of a move. In a pool it has an unused name, and its path is
// known only after it is made.
func pauseDst(v api.Volume, migrationID string, in api.MigrationTarget) api.Location {
	dst := api.Location{Pool: in.ToPool, Path: in.ToPath, Format: cmp.Or(in.ToFormat, v.Location.Format), SizeBytes: v.SizeBytes}
	if in.ToPool != "" {
		dst.Name = fmt.Sprintf("%s-%s.%s", v.Name, migrationID[:8], dst.Format)
	}
	return dst
}

// guestsToPause returns the instances with the volume, if all can be saved now.
func (tx *changeTx) guestsToPause(ctx context.Context, v api.Volume, present []string, k kind) ([]PauseInstance, error) {
	switch {
	case v.MigrationID != "":
		return nil, store.MigrationActive(v, "migrate")
	case v.Status == api.VolumeResizing:
		return nil, store.NotAvailable(v, "migrate")
	case v.Location.IsLinkedClone():
		return nil, api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s %s: it is a linked clone, which one guest has; migrate it without %s", v.Name, k.manner, k.request)
	case v.Location.IsLUKS():
		return nil, api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s %s: it is encrypted by QEMU (LUKS), and such a volume moves only by itself, with its one guest; migrate it without %s", v.Name, k.manner, k.request)
	case v.Unheld():
		return nil, api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s %s: no guest has it; migrate it without %s", v.Name, k.manner, k.request)
	}
	var guests []PauseInstance
	for _, a := range v.Attachments {
		if a.State != api.AttachmentAttached {
			return nil, api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: its attachment %s is %s", v.Name, a.ID, a.State)
		}
		g, err := tx.guestToPause(ctx, v, a.InstanceID, present, k)
		if err != nil {
			return nil, err
		}
		guests = append(guests, g)
	}
	slices.SortFunc(guests, func(a, b PauseInstance) int { return cmp.Compare(a.ID, b.ID) })
	return guests, tx.checkOnlyTheyShare(ctx, v, guests, k)
}

// checkOnlyTheyShare refuses a guest that shares another volume with an instance outside of the
// move, if either may write to it: the guest's saved memory would be older than that volume's
// content.
func (tx *changeTx) checkOnlyTheyShare(ctx context.Context, v api.Volume, guests []PauseInstance, k kind) error {
	paused := map[string]string{}
	for _, g := range guests {
		paused[g.ID] = g.Name
	}
	for _, g := range guests {
		shared, err := ledger.QueryAll(ctx, tx, func(row ledger.Scanner) (o struct{ id, name, volume string }, err error) {
			err = row.Scan(&o.id, &o.name, &o.volume)
			return o, err
		}, `SELECT i.id, i.name, v.name FROM attachments own
			JOIN attachments o ON o.volume_id = own.volume_id AND o.instance_id <> own.instance_id
			JOIN instances i ON i.id = o.instance_id JOIN volumes v ON v.id = own.volume_id
			WHERE own.instance_id = ? AND own.volume_id <> ? AND (own.mode = 'rw' OR o.mode = 'rw') ORDER BY v.name, i.name`, g.ID, v.ID)
		if err != nil {
			return fmt.Errorf("look for what else is shared: %w", err)
		}
		for _, o := range shared {
			if _, too := paused[o.id]; !too {
				return api.Errorf(api.CodeMultiattached, "cannot migrate volume %s %s: instance %s shares volume %s with instance %s as well, which would run on; "+
					"detach volume %s from one of them", v.Name, k.manner, g.Name, o.volume, o.name, o.volume).With("instance_id", o.id)
			}
		}
	}
	return nil
}

func (tx *changeTx) guestToPause(ctx context.Context, v api.Volume, instanceID string, present []string, k kind) (PauseInstance, error) {
	g := PauseInstance{ID: instanceID, State: PausePending}
	var (
		state, rest   api.InstanceState
		reason, moved string
		busy          bool
	)
	if err := tx.QueryRowContext(ctx, `SELECT i.name, i.state, i.standstill, i.lock_reason, h.id, h.name, h.fenced,
			EXISTS (SELECT 1 FROM attachments a WHERE a.instance_id = i.id AND a.state <> 'attached' AND a.migration_id IS NULL),
			COALESCE((SELECT m.id FROM attachments a JOIN migrations m ON m.volume_id = a.volume_id WHERE a.instance_id = i.id AND `+store.MigrationOpen+` LIMIT 1), ''),
			EXISTS (SELECT 1 FROM attachments a WHERE a.instance_id = i.id AND a.mode = 'rw'
				AND EXISTS (SELECT 1 FROM attachments o WHERE o.volume_id = a.volume_id AND o.instance_id <> i.id))
		FROM instances i JOIN hosts h ON h.id = i.host_id WHERE i.id = ?`, instanceID).
		Scan(&g.Name, &state, &rest, &reason, &g.Host.ID, &g.Host.Name, &g.Host.Fenced, &busy, &moved, &g.Writes); err != nil {
		return g, fmt.Errorf("read instance: %w", err)
	}
	if err := CheckGuest(tx.Call, "migrate volume "+v.Name+" "+k.manner, g); err != nil {
		return g, err
	}
	refuse := func(code api.Code, format string, args ...any) error {
		return api.Errorf(code, "cannot migrate volume %s %s: instance %s on host %s %s", v.Name, k.manner, g.Name, g.Host.Name, fmt.Sprintf(format, args...)).
			With("instance_id", g.ID)
	}
	switch state {
	case api.InstanceShelved, api.InstanceShelvedOffloaded, api.InstanceError:
		return g, refuse(api.CodeStateForbidden, "is %s", state)
	case api.InstanceRunning, api.InstancePaused, api.InstanceAsleep, api.InstanceCrashed, api.InstanceStopped:
	}
	switch {
	case moved != "": // the migration may also be the reason of the lock, and ends
		return g, refuse(api.CodeInstanceBusy, "has another volume that migration %s moves; complete or cancel that first", moved)
	case reason != "":
		return g, refuse(api.CodeInstanceLocked, "is locked: %s", reason)
	case busy:
		return g, refuse(api.CodeInstanceBusy, "is getting or losing a volume; try again")
	case g.Host.Fenced:
		return g, refuse(api.CodeHypervisorUnavailable, "cannot be saved: its host is fenced")
	case !slices.Contains(present, g.Host.ID):
		return g, refuse(api.CodeHypervisorUnavailable, "cannot be saved: its host is not there; look at volferryd on that host")
	case state == api.InstancePaused && rest == api.InstanceAsleep:
		return g, refuse(api.CodeInstanceBusy, "cannot be saved: it is asleep (S3); `%s` on that host wakes it; migrate again then", shell.Line("virsh", "dompmwakeup", "--", g.Name))
	case state == api.InstancePaused && rest == api.InstanceCrashed:
		return g, refuse(api.CodeInstanceBusy, "cannot be saved: it has crashed, and its process is kept; `%s` and then `%s` on that host boot it again; migrate again then",
			shell.Line("virsh", "reset", "--", g.Name), shell.Line("virsh", "resume", "--", g.Name))
	}
	return g, tx.CheckNoSplitBrain("migrate volume "+v.Name+" of instance "+g.Name, g.ID, g.Host.ID)
}

func (tx *changeTx) checkGuestReaches(ctx context.Context, v api.Volume, t api.VolumeType, g PauseInstance, dst api.Location) error {
	if err := store.CheckDst(ctx, tx, v, t, g.Host.ID, dst); err != nil {
		return err
	}
	if dst.Pool != "" {
		var active bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pools WHERE host_id = ? AND name = ? AND active = 1)", g.Host.ID, dst.Pool).Scan(&active); err != nil {
			return fmt.Errorf("look up pool: %w", err)
		}
		if !active {
			return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: host %s, which has instance %s, has no active pool %s", v.Name, g.Host.Name, g.Name, validate.Quote(dst.Pool))
		}
	}
	alone := true
	for _, a := range v.Attachments {
		alone = alone && a.Host == g.Host.Name
	}
	shared, err := store.InSharedPool(ctx, tx, g.Host.ID, dst)
	if err != nil || alone || shared {
		return err
	}
	return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: its guests are on several hosts, and %s is in no pool that host %s reports as shared", v.Name, store.Place(dst), g.Host.Name)
}

// insertPause takes the locks and reserves dst. The host of the first guest is the copy host.
func (tx *changeTx) insertPause(ctx context.Context, v api.Volume, t api.VolumeType, id string, in api.MigrationTarget, dst api.Location, guests []PauseInstance, k kind) error {
	none := v
	none.Attachments = nil // the migration has no attachments: the flip moves all of them
	if err := tx.InsertMigration(ctx, none, t, guests[0].Host.ID, api.MigrationRegister{ID: id, VolumeID: v.ID, Dst: dst, Method: k.method, ToType: in.ToType, OpID: id}); err != nil {
		return err
	}
	request, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if err := tx.Exec(ctx, "INSERT INTO pauses (migration_id, phase, request) VALUES (?, 'checking', ?)", id, string(request)); err != nil {
		return err
	}
	for _, g := range guests {
		if err := tx.Exec(ctx, "INSERT INTO pause_instances (migration_id, instance_id, host_id, state, writes) VALUES (?, ?, ?, 'pending', ?)", id, g.ID, g.Host.ID, g.Writes); err != nil {
			return err
		}
		if err := tx.LockInstance(ctx, g.ID, "its volume "+v.Name+" is moved "+k.manner, id); err != nil {
			return err
		}
	}
	if k.method == api.MethodLive {
		return tx.insertLive(ctx, v, id, guests, time.Duration(in.MaxPauseSeconds)*time.Second)
	}
	return nil
}

// unlockGuest removes the move's lock of an instance, which may be gone from the registry.
func (tx *changeTx) unlockGuest(ctx context.Context, instanceID, migrationID string) error {
	if err := tx.UnlockInstance(ctx, instanceID, migrationID); !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return nil
}
