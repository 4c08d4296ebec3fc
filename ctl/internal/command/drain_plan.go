// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// drainPlan is what a drain would do to a volume: a plan, or why it is refused.
type drainPlan struct {
	VolumeID   string             `json:"volume_id"`
	VolumeName string             `json:"volume_name"`
	Host       string             `json:"host,omitempty"`
	SizeBytes  int64              `json:"size_bytes"`
	Plan       *api.MigrationPlan `json:"plan,omitempty"`
	// Pause is, of a volume that moves while its guests write, what that costs these.
	Pause *api.PauseEstimate `json:"pause,omitempty"`
	Error *api.Error         `json:"error,omitempty"`
}

// showDrainPlan prints what a drain would do to each volume of the pool, and does nothing.
func showDrainPlan(ctx context.Context, s *session.Session, pool string, in api.PoolDrain) error {
	plans, err := planDrain(ctx, s, pool, in)
	if err != nil {
		return err
	}
	if s.JSON {
		doc, err := json.Marshal(plans)
		if err != nil {
			return fmt.Errorf("encode plans: %w", err)
		}
		return cmp.Or(render.JSON(s.Stdout, session.Response{}.With("plans", doc).Members), refuseDrain(plans, pool, in.ToPool))
	}
	t := render.Table{Header: []string{"VOLUME", "HOST", "SIZE", "TAKES", "METHOD"}}
	ids := make([]string, 0, len(plans))
	var reasons []string
	for _, p := range plans {
		ids = append(ids, p.VolumeID)
		takes, method := "-", "STAYS"
		if p.Pause != nil {
			takes, method = api.Bytes(p.SizeBytes), fmt.Sprintf("live, %s stand still for about %s", api.Count(len(p.Pause.Instances), "guest"), render.Seconds(p.Pause.DowntimeSeconds))
		} else if p.Plan != nil {
			method = p.Plan.Method
			if p.Plan.NeededBytes != nil {
				takes = api.Bytes(*p.Plan.NeededBytes)
			}
		} else {
			reasons = append(reasons, p.VolumeName+" stays: "+p.Error.Message)
		}
		t.Add(p.VolumeName, p.Host, api.Bytes(p.SizeBytes), takes, method)
	}
	if err := s.PrintList(session.Response{}, ids, &t, fmt.Sprintf("Pool %s has no volume.", pool)); err != nil || s.Quiet || len(plans) == 0 {
		return cmp.Or(err, refuseDrain(plans, pool, in.ToPool))
	}
	if len(reasons) > 0 {
		reasons = append([]string{""}, reasons...)
	}
	if err := s.PrintLines(append(reasons, roomLines(plans, in.ToPool)...)...); err != nil {
		return err
	}
	if refused := refuseDrain(plans, pool, in.ToPool); refused != nil {
		return refused
	}
	s.Say("Nothing was done. Without --dry-run the volumes that do not stay are moved.")
	return nil
}

// refuseDrain is an error if the pool has volumes and none of them would be moved.
func refuseDrain(plans []drainPlan, pool, to string) error {
	if len(plans) == 0 || slices.ContainsFunc(plans, func(p drainPlan) bool { return p.Plan != nil || p.Pause != nil }) {
		return nil
	}
	return api.Errorf(api.CodeConflict, "no volume of pool %s can be moved to pool %s, and nothing was done", pool, to)
}

// planDrain asks for the plan of each volume of a pool, by name.
func planDrain(ctx context.Context, s *session.Session, pool string, in api.PoolDrain) ([]drainPlan, error) {
	pools, _, err := session.List(ctx, s, routes.ListPools)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{pool, in.ToPool} { // as the drain itself refuses it
		if !slices.ContainsFunc(pools, func(p api.Pool) bool { return p.Name == name }) {
			return nil, api.Errorf(api.CodeNotFound, "there is no pool %q on any host; 'pool list' shows them", name)
		}
	}
	volumes, _, err := session.List(ctx, s, routes.ListVolumes)
	if err != nil {
		return nil, err
	}
	plans := []drainPlan{}
	for i := range volumes {
		v := &volumes[i]
		if v.Location.Pool != pool {
			continue
		}
		p := drainPlan{VolumeID: v.ID, VolumeName: v.Name, Host: v.Host, SizeBytes: v.SizeBytes}
		var err error
		if in.LiveShared && len(v.Attachments) > 1 {
			p.Pause, _, err = session.Ask(ctx, s, routes.EstimateMigration, in.LiveTarget(), v.ID)
		} else {
			p.Plan, _, err = session.Ask(ctx, s, routes.PlanMigration, in.Target(), v.ID)
		}
		var refused *api.Error
		switch {
		case err == nil:
		case errors.As(err, &refused):
			p.Error = refused
		default:
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// roomLines say, for each host, what its volumes take together and what is free for them.
func roomLines(plans []drainPlan, to string) []string {
	type room struct{ takes, free int64 }
	rooms := map[string]*room{}
	var hosts []string
	for _, p := range plans {
		if p.Plan == nil || p.Plan.NeededBytes == nil || p.Plan.FreeBytes == nil {
			continue
		}
		if rooms[p.Host] == nil {
			rooms[p.Host] = &room{}
			hosts = append(hosts, p.Host)
		}
		rooms[p.Host].takes += *p.Plan.NeededBytes
		rooms[p.Host].free = *p.Plan.FreeBytes
	}
	slices.Sort(hosts)
	lines := []string{""}
	for _, host := range hosts {
		line := fmt.Sprintf("Those of %s take up to %s together; pool %s has %s free there.", hostOrNone(host), api.Bytes(rooms[host].takes), to, api.Bytes(rooms[host].free))
		if rooms[host].takes > rooms[host].free {
			line += " NOT ALL OF THEM MAY FIT."
		}
		lines = append(lines, line)
	}
	return lines
}
