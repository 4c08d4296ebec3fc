// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// fakeRegistry is the registry's side of one volume, with its rules as far as a
// migration meets them.
type fakeRegistry struct {
	mu    sync.Mutex
	down  bool
	vol   api.Volume
	rows  map[string]api.Migration
	order []api.MigrationState
	// epoch is the host's, told the one that the host was last told.
	epoch, told int64
	// before has the state of the rows that a fence has orphaned.
	before map[string]api.MigrationState
	// last is what the last registration asked for.
	last api.MigrationRegister
	// delay is how long it takes to say where a volume is.
	delay time.Duration
	// onChange, where set, is called at every change of a row's state.
	onChange func(to api.MigrationState)
	// others are the volumes besides vol.
	others []api.Volume
	// onCall, where set, is called before and after every call that has an
	// effect or tells of one, without the lock held.
	onCall func(after bool)
}

// Volumes implements location.Site.
func (r *fakeRegistry) Volumes(context.Context) (all []api.Volume, err error) {
	err = r.call(func() error {
		all = append([]api.Volume{r.vol}, r.others...)
		return nil
	})
	return all, err
}

// Migrations implements location.Site.
func (r *fakeRegistry) Migrations(context.Context, string, bool) (all []api.Migration, err error) {
	err = r.call(func() error {
		for _, row := range r.rows {
			if !row.State.Final() {
				all = append(all, row)
			}
		}
		return nil
	})
	return all, err
}

func newFakeRegistry() *fakeRegistry {
	loc := api.Location{Path: srcPath, Format: api.FormatRaw, SizeBytes: testSize}
	att := api.Attachment{
		ID: testSrcAtt, VolumeID: testVolume, InstanceID: testInstance, Host: testHost, Mode: api.ModeRW,
		Device: "vda", State: api.AttachmentAttached, Location: loc,
	}
	return &fakeRegistry{
		rows: map[string]api.Migration{}, before: map[string]api.MigrationState{}, epoch: 1, told: 1,
		vol: api.Volume{
			ID: testVolume, Name: "vol", Status: api.VolumeInUse, SizeBytes: testSize, Generation: 1, Host: testHost,
			Location: loc, Attachments: []api.Attachment{att},
		},
	}
}

func (r *fakeRegistry) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *fakeRegistry) toldEpoch() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// fence is an operator who says that the host is off.
func (r *fakeRegistry) fence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	for id, row := range r.rows {
		if !row.State.Final() {
			r.before[id], row.State = row.State, api.MigrationOrphaned
			r.rows[id] = row
		}
	}
}

// rejoin is the host that has come back, and been told its epoch.
func (r *fakeRegistry) rejoin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = r.epoch
	for id, row := range r.rows {
		if row.State == api.MigrationOrphaned {
			row.State = r.before[id]
			r.rows[id] = row
		}
	}
}

// abandon is an operator who gives an orphaned migration up and keeps src.
func (r *fakeRegistry) abandon(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row := r.rows[id]
	row.State = api.MigrationCancelled
	r.rows[id] = row
	r.vol.MigrationID = ""
}

// take is an operator who then takes the volume from the host.
func (r *fakeRegistry) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vol.Attachments = nil
}

// call is a call: it is cut off if the registry is down, before its effect or
// after it.
func (r *fakeRegistry) call(effect func() error) error {
	for _, after := range []bool{false, true} {
		r.mu.Lock()
		onCall := r.onCall
		r.mu.Unlock()
		if onCall != nil {
			onCall(after)
		}
		r.mu.Lock()
		if r.down {
			r.mu.Unlock()
			return api.Errorf(api.CodeRegistryUnavailable, "the registry is down")
		}
		if !after {
			if err := effect(); err != nil {
				r.mu.Unlock()
				return err
			}
		}
		r.mu.Unlock()
	}
	return nil
}

func (r *fakeRegistry) Volume(context.Context, string) (vol api.Volume, err error) {
	pass(r.delay)
	err = r.call(func() error { vol = r.vol; return nil })
	return vol, err
}

func (r *fakeRegistry) GrowVolume(_ context.Context, _, _ string, in api.VolumeGrow) (vol api.Volume, err error) {
	err = r.call(func() error {
		if r.vol.MigrationID != "" {
			return api.Errorf(api.CodeMigrationActive, "cannot grow volume %s: it moves", r.vol.Name)
		}
		r.vol.SizeBytes, r.vol.Location.SizeBytes = in.SizeBytes, in.SizeBytes
		vol = r.vol
		return nil
	})
	return vol, err
}

func (r *fakeRegistry) Attachment(context.Context, string) (att api.Attachment, err error) {
	err = r.call(func() error { att = r.vol.Attachments[0]; return nil })
	return att, err
}

func (r *fakeRegistry) Instance(context.Context, string) (api.Instance, error) {
	return api.Instance{ID: testInstance, Name: "web"}, nil
}

func (r *fakeRegistry) Migration(_ context.Context, id string) (row api.Migration, err error) {
	err = r.call(func() error {
		var ok bool
		if row, ok = r.rows[id]; !ok {
			return api.Errorf(api.CodeNotFound, "no migration %s", id)
		}
		return nil
	})
	return row, err
}

func (r *fakeRegistry) checkEpoch(epoch int64) error {
	if epoch != r.epoch {
		return api.Errorf(api.CodeStaleEpoch, "the host is in epoch %d", r.epoch).With("epoch", r.epoch)
	}
	return nil
}

func (r *fakeRegistry) RegisterMigration(_ context.Context, _ string, m api.MigrationRegister) (row api.Migration, err error) {
	err = r.call(func() error {
		var ok bool
		if row, ok = r.rows[m.ID]; ok {
			return nil
		}
		if err := r.checkEpoch(m.Epoch); err != nil {
			return err
		}
		if r.vol.MigrationID != "" {
			return api.Errorf(api.CodeMigrationActive, "volume vol has migration %s", r.vol.MigrationID)
		}
		row = api.Migration{ID: m.ID, State: api.MigrationStarting, Dst: m.Dst}
		r.vol.MigrationID, r.rows[m.ID], r.last = m.ID, row, m
		return nil
	})
	return row, err
}

func (r *fakeRegistry) TransitionMigration(_ context.Context, _, id string, t api.MigrationTransition) (row api.Migration, err error) {
	err = r.call(func() error {
		row, err = r.transition(id, t)
		return err
	})
	return row, err
}

func (r *fakeRegistry) transition(id string, t api.MigrationTransition) (api.Migration, error) {
	row, ok := r.rows[id]
	if err := r.checkEpoch(t.Epoch); err != nil {
		return row, err
	}
	switch {
	case !ok:
		return row, api.Errorf(api.CodeNotFound, "no migration %s", id)
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
	r.rows[id] = row
	r.order = append(r.order, t.To)
	if r.onChange != nil {
		r.onChange(t.To)
	}
	if t.To.Final() {
		r.vol.MigrationID = ""
	}
	if t.To == api.MigrationCompleted {
		r.vol.Location = row.Dst
		r.vol.Generation++
	}
	return row, nil
}

// tell sets onChange.
func (r *fakeRegistry) tell(onChange func(to api.MigrationState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = onChange
}

// atCall sets onCall.
func (r *fakeRegistry) atCall(onCall func(after bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onCall = onCall
}

// volume is the registry's row of the volume.
func (r *fakeRegistry) volume() api.Volume {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.vol
}
