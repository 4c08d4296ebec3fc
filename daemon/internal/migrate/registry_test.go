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
	// delay is how long it takes to say where a volume is.
	delay time.Duration
	// onChange, where set, is called at every change of a row's state.
	onChange func(to api.MigrationState)
}

func newFakeRegistry() *fakeRegistry {
	loc := api.Location{Path: srcPath, Format: api.FormatRaw, SizeBytes: testSize}
	att := api.Attachment{
		ID: testSrcAtt, VolumeID: testVolume, InstanceID: testInstance, Host: testHost, Mode: api.ModeRW,
		Device: "vda", State: api.AttachmentAttached, Location: loc,
	}
	return &fakeRegistry{rows: map[string]api.Migration{}, vol: api.Volume{
		ID: testVolume, Name: "vol", Status: api.VolumeInUse, SizeBytes: testSize, Generation: 1, Host: testHost,
		Location: loc, Attachments: []api.Attachment{att},
	}}
}

func (r *fakeRegistry) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *fakeRegistry) locked() (func(), error) {
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return nil, api.Errorf(api.CodeRegistryUnavailable, "the registry is down")
	}
	return r.mu.Unlock, nil
}

func (r *fakeRegistry) Volume(context.Context, string) (api.Volume, error) {
	pass(r.delay)
	unlock, err := r.locked()
	if err != nil {
		return api.Volume{}, err
	}
	defer unlock()
	return r.vol, nil
}

func (r *fakeRegistry) Attachment(context.Context, string) (api.Attachment, error) {
	unlock, err := r.locked()
	if err != nil {
		return api.Attachment{}, err
	}
	defer unlock()
	return r.vol.Attachments[0], nil
}

func (r *fakeRegistry) Instance(context.Context, string) (api.Instance, error) {
	return api.Instance{ID: testInstance, Name: "web"}, nil
}

func (r *fakeRegistry) Migration(_ context.Context, id string) (api.Migration, error) {
	unlock, err := r.locked()
	if err != nil {
		return api.Migration{}, err
	}
	defer unlock()
	row, ok := r.rows[id]
	if !ok {
		return row, api.Errorf(api.CodeNotFound, "no migration %s", id)
	}
	return row, nil
}

func (r *fakeRegistry) RegisterMigration(_ context.Context, _ string, m api.MigrationRegister) (api.Migration, error) {
	unlock, err := r.locked()
	if err != nil {
		return api.Migration{}, err
	}
	defer unlock()
	if row, ok := r.rows[m.ID]; ok {
		return row, nil
	}
	if r.vol.MigrationID != "" {
		return api.Migration{}, api.Errorf(api.CodeMigrationActive, "volume vol has migration %s", r.vol.MigrationID)
	}
	r.vol.MigrationID = m.ID
	r.rows[m.ID] = api.Migration{ID: m.ID, State: api.MigrationStarting, Dst: m.Dst}
	return r.rows[m.ID], nil
}

func (r *fakeRegistry) TransitionMigration(_ context.Context, _, id string, t api.MigrationTransition) (api.Migration, error) {
	unlock, err := r.locked()
	if err != nil {
		return api.Migration{}, err
	}
	defer unlock()
	row, ok := r.rows[id]
	switch {
	case !ok:
		return row, api.Errorf(api.CodeNotFound, "no migration %s", id)
	case row.State == t.To:
		return row, nil
	case !slices.Contains(t.From, row.State):
		return row, api.Errorf(api.CodeConflict, "migration %s is %s", id, row.State)
	}
	row.State = t.To
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

// volume is the registry's row of the volume.
func (r *fakeRegistry) volume() api.Volume {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.vol
}
