// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

// drainPlan is a drain's effect on a volume: the plan of its move, the refusal, or the present
// migration to await. Error also names an image below the pool's path that a volume outside the
// pool needs.
type drainPlan struct {
	VolumeID   string             `json:"volume_id"`
	VolumeName string             `json:"volume_name"`
	Host       string             `json:"host,omitempty"`
	SizeBytes  int64              `json:"size_bytes"`
	Plan       *api.MigrationPlan `json:"plan,omitempty"`
	// Method is for a volume with several guests. Pause is the cost for them.
	Method string             `json:"method,omitempty"`
	Pause  *api.PauseEstimate `json:"pause,omitempty"`
	// Migration is a present move of the volume out of the pool, or into it. After a move into the
	// pool the drain moves the volume.
	Migration *api.Migration `json:"migration,omitempty"`
	Error     *api.Error     `json:"error,omitempty"`
	// outside means that the volume is not in the pool; Error names the image below the pool's
	// path that it needs.
	outside bool
}

func (p *drainPlan) comes(pool string) bool {
	return p.Migration != nil && p.Migration.Dst.Pool == pool
}

type drainPlans struct {
	pool  string
	in    api.PoolDrain
	plans []drainPlan
	to    []api.Pool
	// needs has the users of the pool other than the volumes in it.
	needs poolNeeds
}

func showDrainPlan(ctx context.Context, s *session.Session, pool string, in api.PoolDrain) error {
	d, err := planDrain(ctx, s, pool, in)
	if err != nil {
		return err
	}
	if s.JSON {
		doc, err := json.Marshal(d.plans)
		if err != nil {
			return fmt.Errorf("encode plans: %w", err)
		}
		return cmp.Or(render.JSON(s.Stdout, session.Response{}.With("plans", doc).Members), d.refusal())
	}
	t := render.Table{Header: []string{"VOLUME", "HOST", "SIZE", "TAKES", "METHOD"}}
	ids := make([]string, 0, len(d.plans))
	var reasons []string
	for i := range d.plans {
		p := &d.plans[i]
		ids = append(ids, p.VolumeID)
		takes, method, reason := p.row(pool)
		if reason != "" {
			reasons = append(reasons, reason)
		}
		t.Add(p.VolumeName, p.Host, humanize.Bytes(p.SizeBytes), takes, method)
	}
	if err := s.PrintList(session.Response{}, ids, &t, fmt.Sprintf("Pool %s has no volume.", pool)); err != nil || s.Quiet {
		return cmp.Or(err, d.refusal())
	}
	reasons = append(reasons, d.needs.lines()...)
	if len(reasons) > 0 {
		reasons = append([]string{""}, reasons...)
	}
	left := leftInPool(ctx, s, &api.Drain{Pool: pool})
	if d.inPool() == 0 {
		return cmp.Or(s.PrintLines(append(reasons, left...)...), d.refusal())
	}
	if err := s.PrintLines(slices.Concat(reasons, d.roomLines(), left)...); err != nil {
		return err
	}
	if refused := d.refusal(); refused != nil {
		return refused
	}
	s.Say("Nothing was done. Without --dry-run the volumes that do not stay are moved.")
	return nil
}

func (p *drainPlan) row(pool string) (takes, method, reason string) {
	switch {
	case p.outside && p.Error.Details[api.DetailBaseImage] != nil:
		return "-", "READS", p.VolumeName + " reads: " + p.Error.Message
	case p.outside:
		return "-", "BELOW", p.VolumeName + " is below: " + p.Error.Message
	case p.Error != nil:
		return "-", "STAYS", p.VolumeName + " stays: " + p.Error.Message
	case p.Migration != nil && p.comes(pool):
		return "up to " + humanize.Bytes(p.SizeBytes), "COMES", fmt.Sprintf("%s comes: migration %s moves it into pool %s; the drain moves it after that migration", p.VolumeName, p.Migration.ID, pool)
	case p.Migration != nil:
		return "-", "LEAVES", fmt.Sprintf("%s leaves: migration %s already moves it to %s", p.VolumeName, p.Migration.ID, render.Location(p.Migration.Dst))
	case p.Pause != nil:
		return humanize.Bytes(p.SizeBytes), fmt.Sprintf("%s, %s paused for about %s", p.Method, humanize.Count(len(p.Pause.Instances), "guest"), render.Seconds(p.Pause.DowntimeSeconds)), ""
	case p.Plan.NeededBytes == nil:
		return "-", p.Plan.Method, ""
	}
	return humanize.Bytes(*p.Plan.NeededBytes), p.Plan.Method, ""
}

func (d *drainPlans) inPool() int {
	n := 0
	for i := range d.plans {
		if !d.plans[i].outside {
			n++
		}
	}
	return n
}

// refusal returns an error if none of the pool's volumes would be moved, or the pool would still
// be needed.
func (d *drainPlans) refusal() error {
	moves := slices.ContainsFunc(d.plans, func(p drainPlan) bool { return p.Error == nil })
	switch {
	case d.needs.any() && (moves || d.inPool() == 0):
		what := "has no volume, and is still needed"
		if moves {
			what = "would still be needed after the drain"
		}
		return &session.AdvisedError{
			Err: api.Errorf(api.CodeConflict, "pool %s %s: %s", d.pool, what, d.needs.text()), Exit: api.ExitOpFailed,
			Advice: "Nothing was done. Do not remove the pool while it is needed: these images and files would be lost.",
		}
	case moves || len(d.plans) == 0:
		return nil
	}
	return api.Errorf(api.CodeConflict, "no volume of pool %s can be moved to pool %s, and nothing was done", d.pool, d.in.ToPool)
}

func planDrain(ctx context.Context, s *session.Session, pool string, in api.PoolDrain) (*drainPlans, error) {
	d := &drainPlans{pool: pool, in: in, plans: []drainPlan{}}
	pools, _, err := session.List(ctx, s, routes.ListPools)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{pool, in.ToPool} { // the drain itself refuses the same pool
		if err := checkPoolIn(pools, name); err != nil {
			return nil, err
		}
	}
	for i := range pools {
		if pools[i].Name == pool {
			d.needs.uses = append(d.needs.uses, pools[i].Uses...)
		}
	}
	d.to = slices.DeleteFunc(slices.Clone(pools), func(p api.Pool) bool { return p.Name != in.ToPool })
	volumes, _, err := session.List(ctx, s, routes.ListVolumes)
	if err != nil {
		return nil, err
	}
	moves, _, err := session.List(ctx, s, routes.ListMigrations)
	if err != nil {
		return nil, err
	}
	for i := range volumes {
		v := &volumes[i]
		p := drainPlan{VolumeID: v.ID, VolumeName: v.Name, Host: v.Host, SizeBytes: v.SizeBytes}
		if n := slices.IndexFunc(moves, func(m api.Migration) bool { return m.VolumeID == v.ID }); n >= 0 && underWay(&moves[n]) {
			p.Migration = &moves[n]
		}
		if v.Location.Pool != pool && !p.comes(pool) {
			if p.Error = needsPool(v, pools, pool); p.Error != nil {
				p.Migration, p.outside = nil, true
				d.plans = append(d.plans, p)
				d.needs.add(p.Error)
			}
			continue
		}
		if p.Migration == nil {
			if err := p.ask(ctx, s, v, in); err != nil {
				return nil, err
			}
		}
		d.plans = append(d.plans, p)
	}
	return d, nil
}

func needsPool(v *api.Volume, pools []api.Pool, pool string) *api.Error {
	i := slices.IndexFunc(pools, func(p api.Pool) bool { return p.Name == pool && p.Host == v.Host })
	if i < 0 {
		return nil
	}
	return v.NeedsPool(&pools[i])
}

func underWay(m *api.Migration) bool {
	return !m.State.Final() && m.State != api.MigrationNeedsOperator && m.State != api.MigrationOrphaned
}

func (p *drainPlan) ask(ctx context.Context, s *session.Session, v *api.Volume, in api.PoolDrain) error {
	var err error
	if in.MovesShared() && len(v.Attachments) > 1 {
		p.Method = cmp.Or(in.SharedTarget().Method, api.MethodSave)
		p.Pause, _, err = session.Ask(ctx, s, routes.EstimateMigration, in.SharedTarget(), v.ID)
	} else {
		p.Plan, _, err = session.Ask(ctx, s, routes.PlanMigration, in.Target(), v.ID)
	}
	if err != nil && !errors.As(err, &p.Error) {
		return err
	}
	return nil
}

// room is volumes' space in a host's pool: after their moves, and at their maximal size.
type room struct {
	host               string
	takes, grown, free int64
	// comes is the size of the volumes still moving into the drained pool, which will take unknown
	// space.
	comes int64
	known bool // free is known
}

// roomLines returns a line for each host with the present and maximal space of its volumes, and
// the free space, which hosts of a shared pool share.
func (d *drainPlans) roomLines() []string {
	shared := slices.ContainsFunc(d.to, func(p api.Pool) bool { return p.Shared })
	rooms := map[string]*room{}
	for i := range d.plans {
		p := &d.plans[i]
		takes, grown := p.room()
		var comes int64
		if p.comes(d.pool) {
			comes, grown = p.SizeBytes, p.SizeBytes
		}
		if takes == 0 && comes == 0 {
			continue
		}
		host := p.Host
		if shared {
			host = ""
		}
		r := rooms[host]
		if r == nil {
			r = &room{host: host}
			r.free, r.known = d.reportedFree(p.Host)
			rooms[host] = r
		}
		r.takes, r.grown, r.comes = r.takes+takes, r.grown+grown, r.comes+comes
		if p.Plan != nil && p.Plan.FreeBytes != nil {
			r.free, r.known = *p.Plan.FreeBytes, true
		}
	}
	lines := []string{""}
	for _, host := range slices.Sorted(maps.Keys(rooms)) {
		if r := rooms[host]; r.known {
			lines = append(lines, r.line(d.in.ToPool, shared))
		}
	}
	return lines
}

// room returns the greatest space that a volume takes at its destination, and its maximal size
// there; both are 0 if unknown, or if the volume is not moved.
func (p *drainPlan) room() (takes, grown int64) {
	switch {
	case p.Plan != nil && p.Plan.NeededBytes != nil && p.Plan.FreeBytes != nil:
		return *p.Plan.NeededBytes, p.Plan.Dst.WholeBytes()
	case p.Pause != nil:
		return p.SizeBytes, p.SizeBytes
	}
	return 0, 0
}

func (d *drainPlans) reportedFree(host string) (free int64, known bool) {
	i := slices.IndexFunc(d.to, func(p api.Pool) bool { return p.Host == host && p.CapacityBytes > 0 })
	if i < 0 {
		return 0, false
	}
	return d.to[i].FreeBytes, true
}

func (r *room) line(pool string, shared bool) string {
	whose, where := "The volumes of "+hostOrNone(r.host), " there"
	if shared {
		whose, where = "All volumes", ""
	}
	takes := "up to " + humanize.Bytes(r.takes) + " together"
	switch {
	case r.comes > 0 && r.takes > 0:
		takes += ", and the volumes that come up to " + humanize.Bytes(r.comes) + " more"
	case r.comes > 0:
		takes = "up to " + humanize.Bytes(r.comes) + " after they have come"
	}
	line := fmt.Sprintf("%s take %s; pool %s has %s free%s.", whose, takes, pool, humanize.Bytes(r.free), where)
	switch {
	case r.takes > r.free:
		line += " THE VOLUMES MAY NOT ALL FIT."
	case r.comes > 0 && r.takes+r.comes > r.free:
		line += " By their sizes, the volumes that come may not fit."
	case r.grown > r.free:
		line += " " + mayGrow(r.grown)
	}
	return line
}

func mayGrow(bytes int64) string {
	return fmt.Sprintf("They may grow to %s: the guests' writes may fill the pool.", humanize.Bytes(bytes))
}
