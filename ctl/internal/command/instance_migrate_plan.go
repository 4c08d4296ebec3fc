// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

const (
	planThere   = "there"
	planMoving  = "moving" // a migration brings it there
	planPending = "pending"
	planRefused = "refused"
)

type instancePlan struct {
	InstanceID   string       `json:"instance_id"`
	InstanceName string       `json:"instance_name"`
	ToPool       string       `json:"to_pool"`
	Volumes      []volumePlan `json:"volumes"`
	// NeededBytes is the greatest space that the volumes take in the pool, FreeBytes its free
	// space, omitted if no volume can be moved.
	NeededBytes int64  `json:"needed_bytes"`
	FreeBytes   *int64 `json:"free_bytes,omitempty"`
	grown       int64  // the maximal size of the moved volumes
}

type volumePlan struct {
	Device     string `json:"device"`
	VolumeID   string `json:"volume_id"`
	VolumeName string `json:"volume_name"`
	SizeBytes  int64  `json:"size_bytes"`
	State      string `json:"state"`
	// Plan is for a pending volume, Migration for a moving volume, and Error for a refused volume.
	Plan      *api.MigrationPlan `json:"plan,omitempty"`
	Migration *api.Migration     `json:"migration,omitempty"`
	Error     *api.Error         `json:"error,omitempty"`
}

func planInstance(ctx context.Context, s *session.Session, ref string, target api.MigrationTarget) (*instancePlan, error) {
	i, _, err := session.Show(ctx, s, routes.ShowInstance, ref)
	if err != nil {
		return nil, err
	}
	p := &instancePlan{InstanceID: i.ID, InstanceName: i.Name, ToPool: target.ToPool, Volumes: []volumePlan{}}
	for _, slot := range i.BlockDeviceMappings {
		if slot.VolumeID == nil {
			continue
		}
		v, err := planVolume(ctx, s, *slot.VolumeID, target)
		if err != nil {
			return nil, err
		}
		v.Device = slot.Device
		p.Volumes = append(p.Volumes, v)
		if v.Plan != nil && v.Plan.NeededBytes != nil && v.Plan.FreeBytes != nil {
			p.NeededBytes += *v.Plan.NeededBytes
			p.grown += v.Plan.Dst.WholeBytes()
			p.FreeBytes = v.Plan.FreeBytes
		}
	}
	p.awaitMoving()
	return p, nil
}

// awaitMoving makes volumes pending that the host refuses only during a move of this plan.
func (p *instancePlan) awaitMoving() {
	for i := range p.Volumes {
		v := &p.Volumes[i]
		if v.Error == nil || v.Error.Code != api.CodeInstanceBusy {
			continue
		}
		by, _ := v.Error.Details["migration_id"].(string)
		if slices.ContainsFunc(p.Volumes, func(o volumePlan) bool { return o.State == planMoving && o.Migration.ID == by }) {
			v.State, v.Error = planPending, nil
		}
	}
}

func planVolume(ctx context.Context, s *session.Session, id string, target api.MigrationTarget) (volumePlan, error) {
	vol, _, err := session.Show(ctx, s, routes.ShowVolume, id)
	if err != nil {
		return volumePlan{}, err
	}
	v := volumePlan{VolumeID: vol.ID, VolumeName: vol.Name, SizeBytes: vol.SizeBytes}
	if vol.MigrationID != "" {
		v.Migration, _, err = session.Show(ctx, s, routes.ShowMigration, vol.MigrationID)
		if err != nil {
			return v, err
		}
		if goesBySelf(v.Migration) && v.Migration.Dst.Pool == target.ToPool {
			v.State = planMoving
			return v, nil
		}
		v.Migration = nil // the present migration is the reason of the refusal
	} else if vol.Location.Pool == target.ToPool {
		v.State = planThere
		return v, nil
	}
	v.Plan, _, err = session.Ask(ctx, s, routes.PlanMigration, target, id)
	switch {
	case err == nil:
		v.State = planPending
	case !errors.As(err, &v.Error), v.Error.Code.ExitStatus() == api.ExitUnavailable, v.Error.Code == api.CodeInternal:
		return v, err // the error is not about the volume
	default:
		v.State = planRefused
	}
	return v, nil
}

func goesBySelf(m *api.Migration) bool {
	switch m.State { //nolint:exhaustive // all others wait for somebody, or go back
	case api.MigrationStarting, api.MigrationCopying, api.MigrationCompleting:
		return !m.ExternalCopy
	}
	return false
}

func (p *instancePlan) refusal() error {
	var why []string
	var first *api.Error
	for _, v := range p.Volumes {
		if v.Error == nil {
			continue
		}
		if first == nil {
			first = v.Error
		}
		why = append(why, fmt.Sprintf("%s (%s): %s", v.VolumeName, v.Device, v.Error.Message))
	}
	switch {
	case first != nil:
		e := api.Errorf(first.Code, "cannot move all volumes of instance %s, and nothing was done: %s", p.InstanceName, strings.Join(why, "; "))
		if !slices.ContainsFunc(p.Volumes, func(v volumePlan) bool { return v.State == planPending }) {
			return e
		}
		return &session.AdvisedError{Err: e, Exit: e.Code.ExitStatus(), Advice: "To move the others: " + shell.Line(session.Program, "volume", "migrate", "VOLUME", "--to-pool", p.ToPool)}
	case p.FreeBytes != nil && p.NeededBytes > *p.FreeBytes:
		return api.Errorf(api.CodeNoSpace, "cannot move all volumes of instance %s, and nothing was done: pool %s has %s free and the volumes may take %s",
			p.InstanceName, p.ToPool, humanize.ExactBytes(*p.FreeBytes), humanize.ExactBytes(p.NeededBytes)).
			With("free_bytes", *p.FreeBytes).With("needed_bytes", p.NeededBytes)
	}
	return nil
}

func showInstancePlan(s *session.Session, p *instancePlan) error {
	doc, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	ids := make([]string, 0, len(p.Volumes))
	t := render.Table{Header: []string{"DEVICE", "VOLUME", "SIZE", "STATE", "METHOD", "SOURCE", "TAKES"}}
	for _, v := range p.Volumes {
		ids = append(ids, v.VolumeID)
		method, source, takes := "", "", ""
		if v.Plan != nil {
			method, source = v.Plan.Method, sourceText(v.Plan)
			if v.Plan.NeededBytes != nil {
				takes = humanize.Bytes(*v.Plan.NeededBytes)
			}
		}
		t.Add(v.Device, v.VolumeName, humanize.Bytes(v.SizeBytes), v.State, method, source, takes)
	}
	if err := s.PrintList(session.Response{}.With("instance_plan", doc), ids, &t, "Instance "+p.InstanceName+" has no volumes."); err != nil {
		return err
	}
	if err := p.refusal(); err != nil {
		return err
	}
	if p.FreeBytes != nil {
		s.Say("Pool %s has %s free, and the volumes take up to %s.", p.ToPool, humanize.Bytes(*p.FreeBytes), humanize.Bytes(p.NeededBytes))
		if p.grown > *p.FreeBytes {
			s.Say("%s", mayGrow(p.grown))
		}
	}
	s.Say("Nothing was done. Without --dry-run the volumes that are pending are moved, one after the other.")
	return nil
}
