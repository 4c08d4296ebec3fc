// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// FakeRegistry simulates the registry for one volume, with the rules for a migration.
type FakeRegistry struct {
	hosttest.Registry
	Vol   api.Volume
	Rows  map[string]api.Migration
	Order []api.MigrationState
	// before has the states of orphaned rows before the fence.
	before map[string]api.MigrationState
	Last   api.MigrationRegister
	// OnChange, if not nil, is called at each change of a migration's state.
	OnChange func(to api.MigrationState)
	Others   []api.Volume
	// RefusesIdentity is IdentifyVolume's error.
	RefusesIdentity error
}

// Volumes implements location.Site.
func (r *FakeRegistry) Volumes(context.Context) (all []api.Volume, err error) {
	err = r.call(func() error {
		all = append([]api.Volume{r.Vol}, r.Others...)
		return nil
	})
	return all, err
}

// EachVolume implements location.Site.
func (r *FakeRegistry) EachVolume(ctx context.Context, do func(*api.Volume) error) error {
	return hosttest.Each(r.Volumes(ctx))(do)
}

// EachOpenMigration implements location.Site.
func (r *FakeRegistry) EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error {
	return hosttest.Each(r.Migrations(ctx, "", false))(do)
}

// Migrations implements location.Site.
func (r *FakeRegistry) Migrations(context.Context, string, bool) (all []api.Migration, err error) {
	err = r.call(func() error {
		for _, row := range r.Rows {
			if !row.State.Final() {
				all = append(all, row)
			}
		}
		return nil
	})
	return all, err
}

func newRegistry() *FakeRegistry {
	loc := api.Location{Path: SrcPath, Format: api.FormatRaw, SizeBytes: Size}
	att := api.Attachment{
		ID: SrcAttachment, VolumeID: Volume, InstanceID: Instance, Host: Host,
		DiskAttachment: api.DiskAttachment{Mode: api.ModeRW, Device: "vda"}, State: api.AttachmentAttached, Location: loc,
	}
	return &FakeRegistry{
		Registry: hosttest.Registry{Moments: &hosttest.Moments{}},
		Rows:     map[string]api.Migration{}, before: map[string]api.MigrationState{},
		Vol: api.Volume{
			ID: Volume, Name: "vol", Status: api.VolumeInUse, SizeBytes: Size, Generation: 1, Host: Host,
			Location: loc, Attachments: []api.Attachment{att},
		},
	}
}

// Fence simulates a fence of the host.
func (r *FakeRegistry) Fence() {
	r.Lock()
	defer r.Unlock()
	r.NextEpoch(Host, false)
	for id, row := range r.Rows {
		if !row.State.Final() {
			r.before[id], row.State = row.State, api.MigrationOrphaned
			r.Rows[id] = row
		}
	}
}

// Rejoin simulates the host's return.
func (r *FakeRegistry) Rejoin() {
	r.Registry.Rejoin(Host)
	r.Lock()
	defer r.Unlock()
	for id, row := range r.Rows {
		if row.State == api.MigrationOrphaned {
			row.State = r.before[id]
			r.Rows[id] = row
		}
	}
}

// Abandon simulates an operator who abandons an orphaned migration and keeps src.
func (r *FakeRegistry) Abandon(id string) {
	r.Lock()
	defer r.Unlock()
	row := r.Rows[id]
	row.State = api.MigrationCancelled
	r.Rows[id] = row
	r.Vol.MigrationID = ""
}

// Take simulates an operator who takes the volume from the host.
func (r *FakeRegistry) Take() {
	r.Lock()
	defer r.Unlock()
	r.Vol.Attachments = nil
}

func (r *FakeRegistry) call(effect func() error) error {
	_, err := hosttest.Ask(&r.Registry, "registry", func() (struct{}, error) { return struct{}{}, effect() })
	return err
}

// Volume implements move.Registry.
func (r *FakeRegistry) Volume(context.Context, string) (vol api.Volume, err error) {
	err = r.call(func() error { vol = r.Vol; return nil })
	return vol, err
}

// GrowVolume implements move.Registry.
func (r *FakeRegistry) GrowVolume(_ context.Context, _, _ string, in api.VolumeGrow) (vol api.Volume, err error) {
	err = r.call(func() error {
		if r.Vol.MigrationID != "" {
			return api.Errorf(api.CodeMigrationActive, "cannot grow volume %s: it moves", r.Vol.Name)
		}
		r.Vol.SizeBytes, r.Vol.Location.SizeBytes = in.SizeBytes, in.SizeBytes
		vol = r.Vol
		return nil
	})
	return vol, err
}

// IdentifyVolume implements move.Registry.
func (r *FakeRegistry) IdentifyVolume(_ context.Context, _, _ string, in api.VolumeIdentify) (vol api.Volume, err error) {
	err = r.call(func() error {
		switch {
		case r.RefusesIdentity != nil:
			return r.RefusesIdentity
		case r.Vol.MigrationID != "":
			return api.Errorf(api.CodeMigrationActive, "cannot change the identity of volume %s: it moves", r.Vol.Name)
		case r.Vol.Location.Path != in.Path:
			return api.Errorf(api.CodeConflict, "volume %s is at %s", r.Vol.Name, r.Vol.Location.Path)
		}
		r.Vol.Location.Identity = in.Identity
		vol = r.Vol
		return nil
	})
	return vol, err
}

// Attachment implements move.Registry.
func (r *FakeRegistry) Attachment(context.Context, string) (att api.Attachment, err error) {
	err = r.call(func() error { att = r.Vol.Attachments[0]; return nil })
	return att, err
}

// Instance implements move.Registry.
func (r *FakeRegistry) Instance(context.Context, string) (inst api.Instance, err error) {
	inst = api.Instance{ID: Instance, Name: "web"}
	err = r.call(func() error {
		for _, a := range r.Vol.Attachments {
			if a.InstanceID == Instance {
				inst.BlockDeviceMappings = append(inst.BlockDeviceMappings, api.BlockDeviceMapping{VolumeID: &a.VolumeID})
			}
		}
		return nil
	})
	return inst, err
}

// Migration implements move.Registry.
func (r *FakeRegistry) Migration(_ context.Context, id string) (row api.Migration, err error) {
	err = r.call(func() error {
		var ok bool
		if row, ok = r.Rows[id]; !ok {
			return api.NotFound("migration", id)
		}
		return nil
	})
	return row, err
}

// RegisterMigration implements move.Registry.
func (r *FakeRegistry) RegisterMigration(_ context.Context, _ string, m api.MigrationRegister) (row api.Migration, err error) {
	err = r.call(func() error {
		var ok bool
		if row, ok = r.Rows[m.ID]; ok {
			return nil
		}
		if err := r.CheckEpoch(Host, m.Epoch); err != nil {
			return err
		}
		if r.Vol.MigrationID != "" {
			return api.Errorf(api.CodeMigrationActive, "volume vol has migration %s", r.Vol.MigrationID)
		}
		row = api.Migration{ID: m.ID, State: api.MigrationStarting, Dst: m.Dst, DstAttachmentID: m.DstAttachmentID}
		r.Vol.MigrationID, r.Rows[m.ID], r.Last = m.ID, row, m
		return nil
	})
	return row, err
}

// TransitionMigration implements move.Registry.
func (r *FakeRegistry) TransitionMigration(_ context.Context, _, id string, t api.MigrationTransition) (row api.Migration, err error) {
	err = r.call(func() error {
		row, err = r.transition(id, t)
		return err
	})
	return row, err
}

func (r *FakeRegistry) transition(id string, t api.MigrationTransition) (api.Migration, error) {
	row, ok := r.Rows[id]
	if err := r.CheckEpoch(Host, t.Epoch); err != nil {
		return row, err
	}
	switch {
	case !ok:
		return row, api.NotFound("migration", id)
	case row.State == t.To:
		return row, nil
	case row.State.Final():
		return row, api.Errorf(api.CodeNoMigration, "migration %s is over: %s", id, row.State)
	case !slices.Contains(t.From, row.State):
		return row, api.Errorf(api.CodeConflict, "migration %s is %s", id, row.State)
	case t.To == api.MigrationCompleted && row.State != api.MigrationCompleting:
		return row, api.Errorf(api.CodeStateForbidden, "migration %s is %s", id, row.State)
	}
	row.State, row.Error = t.To, t.Error
	r.Rows[id] = row
	r.Order = append(r.Order, t.To)
	if r.OnChange != nil {
		r.OnChange(t.To)
	}
	if t.To.Final() {
		r.Vol.MigrationID = ""
	}
	if t.To == api.MigrationCompleted {
		r.Vol.Location = row.Dst
		r.Vol.Generation++
		if len(r.Vol.Attachments) == 1 {
			r.Vol.Attachments = slices.Clone(r.Vol.Attachments)
			r.Vol.Attachments[0].ID, r.Vol.Attachments[0].Location = row.DstAttachmentID, row.Dst
		}
	}
	return row, nil
}

// WatchChanges sets OnChange.
func (r *FakeRegistry) WatchChanges(onChange func(to api.MigrationState)) {
	r.Lock()
	defer r.Unlock()
	r.OnChange = onChange
}

// CurrentVolume returns the volume's row.
func (r *FakeRegistry) CurrentVolume() api.Volume {
	r.Lock()
	defer r.Unlock()
	return r.Vol
}

// SavedRow sets the state of a move with all guests paused.
func (r *FakeRegistry) SavedRow(state api.MigrationState) {
	r.Lock()
	defer r.Unlock()
	r.Rows[Migration] = api.Migration{ID: Migration, VolumeID: Volume, Method: move.MethodSave, State: state}
	r.Vol.MigrationID = Migration
}

// Flip moves the volume to dst in the registry.
func (r *FakeRegistry) Flip() {
	r.SavedRow(api.MigrationCompleting)
	r.Lock()
	defer r.Unlock()
	r.Vol.Location.Path = DstPath
}

// LiveRow sets the state of a move while all guests write.
func (r *FakeRegistry) LiveRow(state api.MigrationState) {
	r.Lock()
	defer r.Unlock()
	r.Rows[Migration] = api.Migration{ID: Migration, VolumeID: Volume, Method: api.MethodLive, State: state}
	r.Vol.MigrationID = Migration
}

// NoRow makes the registry forget the migration.
func (r *FakeRegistry) NoRow() { r.Forget(Migration) }

// Revert simulates a restore from a backup from this state of the migration.
func (r *FakeRegistry) Revert(id string, state api.MigrationState) {
	r.Lock()
	defer r.Unlock()
	row := r.Rows[id]
	row.State = state
	r.Rows[id] = row
}

// Forget removes a migration, as the restore of a backup does.
func (r *FakeRegistry) Forget(id string) {
	r.Lock()
	defer r.Unlock()
	delete(r.Rows, id)
	r.Vol.MigrationID = ""
}
