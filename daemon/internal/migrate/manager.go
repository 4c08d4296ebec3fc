// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Config is what the operator decides about migrations on this host.
type Config struct {
	// OverlayDir is where overlays live: a persistent filesystem of this host.
	OverlayDir string
	// Rules say where a destination given by path may be.
	Rules location.Rules
	// OverlayMinFreeBytes must be free there before a migration starts, or what
	// the volume can need at the most if that is less.
	OverlayMinFreeBytes int64
	// SharedPools are pools in which other hosts see the same bytes, besides those
	// whose type says so.
	SharedPools []string
}

// Manager starts migrations, brings them to their end and answers for them. It
// is safe for concurrent use.
type Manager struct {
	cfg     Config
	ports   steps.Ports
	env     *steps.Env
	journal Journal
	host    func(context.Context) (steps.Host, error)
	log     *slog.Logger
	runner  *op.Runner
	watch   *watchers

	// ended has the ids of migrations that were seen to be over, which they stay:
	// their history is not read again to list those that are not.
	ended sync.Map

	// groups has the migrations of ops, so that who follows one is told without a
	// look at the op.
	groups sync.Map

	retries retries

	chains  chainProblems
	ioStops ioStops

	// admit makes the look at a migration and the submission of its next op
	// one.
	admit sync.Mutex
}

// New makes a manager. Host answers for this host once the registry knows it.
// Bind the manager to the runner that runs its Plans before any other call.
func New(cfg Config, ports steps.Ports, journal Journal, host func(context.Context) (steps.Host, error), log *slog.Logger) *Manager {
	m := &Manager{cfg: cfg, ports: ports, journal: journal, host: host, log: log, watch: newWatchers()}
	status := func(ctx context.Context, opID string) (op.Status, error) { return m.runner.Status(ctx, opID) }
	m.env = steps.NewEnv(ports, steps.NewHistory(journal, status), host, m.watch.notify, log)
	return m
}

// Bind gives the manager its runner.
func (m *Manager) Bind(r *op.Runner) { m.runner = r }

func (m *Manager) overlayPath(migrationID string) string {
	return filepath.Join(m.cfg.OverlayDir, migrationID+".qcow2")
}

// StartRequest asks for a migration. Composite is `volume migrate`: everything
// up to the end, or with an external copy up to where that is to be made.
type StartRequest struct {
	OpID      string
	VolumeID  string
	Target    api.MigrationTarget
	Composite bool
}

// Start makes all checks, stores the migration and begins it. It returns as
// soon as the registry has granted the lock, or with the refusal. A repeated
// request gets the same migration.
func (m *Manager) Start(ctx context.Context, req StartRequest) (api.Migration, error) {
	switch id, err := m.repeated(ctx, req.OpID, steps.GoalStart, req); {
	case err != nil:
		return api.Migration{}, err
	case id != "":
		return m.granted(ctx, id, req.OpID)
	}
	vol, err := m.ports.Registry.Volume(ctx, req.VolumeID)
	if err != nil {
		return api.Migration{}, err
	}
	id, err := m.admitStart(ctx, vol, req)
	if err != nil {
		return api.Migration{}, err
	}
	return m.granted(ctx, id, req.OpID)
}

// admitStart returns the id of the migration that it has stored, or that the
// same request, made at the same time, has.
func (m *Manager) admitStart(ctx context.Context, vol api.Volume, req StartRequest) (string, error) {
	m.admit.Lock()
	defer m.admit.Unlock()
	if id, err := m.repeated(ctx, req.OpID, steps.GoalStart, req); id != "" || err != nil {
		return id, err
	}
	if err := m.noOther(ctx, vol); err != nil {
		return "", err
	}
	spec, err := m.preflight(ctx, vol, req.Target)
	if err != nil {
		return "", err
	}
	spec.Composite = req.Composite
	if err := checkByHand(spec, req); err != nil {
		return "", err
	}
	kind, err := m.kindFor(ctx, spec, steps.GoalStart)
	if err != nil {
		return "", err
	}
	if err := m.submit(ctx, kind, req.OpID, steps.Input{Spec: *spec, RequestID: req.OpID}, req); err != nil {
		return "", err
	}
	m.log.Info("migration begins", "migration", spec.MigrationID, "volume", spec.VolumeName, "from", spec.Src.Path, "to", spec.Dst.Path)
	return spec.MigrationID, nil
}

// noOther refuses a second migration of a volume by the journal's word; the
// registry says the same, but may be behind.
func (m *Manager) noOther(ctx context.Context, vol api.Volume) error {
	open, err := m.List(ctx, false)
	if err != nil {
		return err
	}
	for i := range open {
		if open[i].VolumeID == vol.ID {
			return api.Errorf(api.CodeMigrationActive, "volume %s has migration %s in progress (%s); see `volferryctl migration show %s`",
				vol.Name, open[i].ID, open[i].State, open[i].ID).With("migration_id", open[i].ID)
		}
	}
	return nil
}

// grantBound is how long a request waits for the registry's word before it is
// answered with what is known.
const grantBound = 10 * time.Second

// granted waits until the start has got its lock, so that a refusal is the
// answer to the request and not a surprise later. The answer is the same however
// often and late it is asked for: a start that got its lock is a migration, even
// if it came to nothing afterwards.
func (m *Manager) granted(ctx context.Context, id, opID string) (api.Migration, error) {
	ctx, cancel := context.WithTimeout(ctx, grantBound)
	defer cancel()
	for range m.watch.changes(ctx, id) {
		st, err := m.runner.Status(ctx, opID)
		if err != nil {
			return api.Migration{}, steps.JournalError(err)
		}
		if steps.Granted(&st) {
			break
		}
		if st.State == op.StateUndone {
			return api.Migration{}, steps.APIError(st.Failure)
		}
	}
	return m.Get(context.WithoutCancel(ctx), id)
}

// submit stores and starts one op of a migration.
func (m *Manager) submit(ctx context.Context, kind, opID string, in steps.Input, asked any) error {
	var err error
	if in.RequestBody, err = json.Marshal(asked); err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode input of op %s: %w", opID, err)
	}
	spec := &in.Spec
	m.groups.Store(opID, spec.MigrationID)
	keys := []string{spec.Key(), spec.CopyKey()}
	switch steps.GoalOf(kind) {
	case steps.GoalCopy:
		keys = []string{spec.CopyKey()}
	case steps.GoalStart:
		keys = []string{spec.Key()}
	case steps.GoalComplete, steps.GoalCancel:
	}
	err = m.runner.Submit(ctx, op.Op{
		ID: opID, Kind: kind, Group: spec.MigrationID, Keys: keys, Input: data, CreatedAt: m.ports.Now().UTC(),
	})
	if errors.Is(err, op.ErrMismatch) {
		return idempotencyMismatch(opID)
	}
	if err != nil {
		return api.Errorf(api.CodeJournalUnavailable, "cannot begin: %v; nothing was changed", err)
	}
	return nil
}

func idempotencyMismatch(opID string) *api.Error {
	return api.Errorf(api.CodeIdempotencyMismatch, "op %s was used for another request", opID)
}

// repeated finds the migration of a request that was made before under the same
// op id; "" if there was none.
func (m *Manager) repeated(ctx context.Context, opID string, what steps.Goal, asked any) (string, error) {
	o, err := m.journal.Op(ctx, opID)
	if errors.Is(err, op.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", steps.JournalError(err)
	}
	var in steps.Input
	ask, err := json.Marshal(asked)
	if err == nil {
		err = json.Unmarshal(o.Input, &in)
	}
	if err != nil {
		return "", fmt.Errorf("compare with op %s: %w", opID, err)
	}
	if steps.GoalOf(o.Kind) != what || string(in.RequestBody) != string(ask) {
		return "", idempotencyMismatch(opID)
	}
	return o.Group, nil
}

func (m *Manager) getOr(ctx context.Context, id string, err error) (api.Migration, error) {
	if err != nil {
		return api.Migration{}, err
	}
	return m.Get(ctx, id)
}

// Get returns a migration.
func (m *Manager) Get(ctx context.Context, id string) (api.Migration, error) {
	h, err := m.loadHistory(ctx, id)
	if err != nil {
		return api.Migration{}, err
	}
	return m.render(h), nil
}

// Resolve returns the migration with this id, or the only one whose id begins
// so.
func (m *Manager) Resolve(ctx context.Context, name string) (api.Migration, error) {
	ids, err := m.ids(ctx)
	if err != nil {
		return api.Migration{}, err
	}
	found := api.Lookup(ids, name, func(id *string) (string, string) { return *id, "" })
	switch len(found) {
	case 0:
		return api.Migration{}, api.Errorf(api.CodeNotFound, "no migration %s on this host; `volferryctl migration list --all` shows them", shorten(name))
	case 1:
		return m.Get(ctx, found[0])
	}
	return api.Migration{}, api.Errorf(api.CodeInvalidArgument, "%s could be any of the migrations %s", name, strings.Join(found, ", "))
}

// List returns the migrations of this host, oldest first: those that are not
// over, or all.
func (m *Manager) List(ctx context.Context, all bool) ([]api.Migration, error) {
	ids, err := m.ids(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.Migration{}
	for _, id := range ids {
		if _, over := m.ended.Load(id); over && !all {
			continue
		}
		mig, err := m.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if isOver(&mig) {
			m.ended.Store(id, nil)
		}
		if all || !isOver(&mig) {
			out = append(out, mig)
		}
	}
	return out, nil
}

// ids returns the ids of all migrations, oldest first.
func (m *Manager) ids(ctx context.Context) ([]string, error) {
	var ops []op.Op
	for _, kind := range []string{steps.KindStart, steps.KindStartOffline, steps.KindStartMirror, steps.KindCopySaved} {
		more, err := m.journal.Ops(ctx, kind, false)
		if err != nil {
			return nil, steps.JournalError(err)
		}
		ops = append(ops, more...)
	}
	sortByAge(ops)
	ids := make([]string, len(ops))
	for i, o := range ops {
		ids[i] = o.Group
	}
	return ids, nil
}

// SetBandwidth changes the cap of a migration's copy; 0 lifts it. It holds until
// the end of the migration.
func (m *Manager) SetBandwidth(ctx context.Context, id string, bytesPerSecond int64) (api.Migration, error) {
	if bytesPerSecond < 0 {
		return api.Migration{}, api.Errorf(api.CodeInvalidArgument, "bandwidth_bytes_per_second is %d; it must not be negative (0 is no limit)", bytesPerSecond)
	}
	mig, err := m.Get(ctx, id)
	if err != nil {
		return mig, err
	}
	if mig.State.Final() {
		return mig, api.Errorf(api.CodeNoMigration, "migration %s is %s; there is nothing to slow down", mig.ID, mig.State)
	}
	h, err := m.loadHistory(ctx, id)
	if err == nil {
		err = m.env.SetBandwidth(&h.spec, bytesPerSecond)
	}
	if err != nil {
		return mig, fmt.Errorf("keep the bandwidth of migration %s: %w", id, err)
	}
	m.watch.notify(id)
	return m.Get(ctx, id)
}

// followUpID is the id of an op that the manager submits by itself: the same
// after a crash, so that it is not submitted twice.
func followUpID(migrationID string, n int) string {
	return uuid.NewSHA1(uuid.MustParse(migrationID), fmt.Appendf(nil, "op %d", n)).String()
}

// Plans returns the plans of all op kinds of a migration, for the runner.
func (m *Manager) Plans() []op.Plan { return m.env.Plans() }
