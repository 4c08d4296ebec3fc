// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// usualRate is the assumed rate of an unknown disk, in bytes per second.
const usualRate = workflow.UsualMemoryRate

type estimateAPI struct {
	volumes *store.Volumes
	pools   *store.Pools
	rates   *workflow.Rates
	targets *targets
	relay   *relay.Relay
}

// estimate estimates a move with all guests paused, or a live move. It asks every host with a
// guest of the volume.
func (s *estimateAPI) estimate(r *http.Request, call store.Call, in api.MigrationTarget) (e api.PauseEstimate, err error) {
	v, err := s.volumes.Get(r.Context(), httpjson.Reference(r), actingViewer(r, call))
	if err != nil {
		return e, err
	}
	free, err := s.freeAt(r.Context(), in.ToPool, v)
	if err != nil {
		return e, err
	}
	guests, err := s.memories(r.Context(), call, v)
	if err != nil {
		return e, err
	}
	measured, err := s.rates.Copy(r.Context(), in.ToPool)
	if err != nil {
		return e, err
	}
	seconds, err := s.standstill(r.Context(), guests)
	if err != nil {
		return e, err
	}
	if in.Method == api.MethodLive { // the rest is copied before the pause
		seconds += workflow.LivePauseBase.Seconds()
	} else {
		seconds += copying(v.SizeBytes, in.CopyOptions, measured)
	}
	return api.PauseEstimate{VolumeID: v.ID, CopyBytes: v.SizeBytes, DstFreeBytes: free, Instances: guests, DowntimeSeconds: seconds}, nil
}

// freeAt returns the least free space in a pool by the last reports of the guests' hosts, nil if
// unknown. pool is "" for a move to a path. freeAt refuses a pool that no host has.
func (s *estimateAPI) freeAt(ctx context.Context, pool string, v api.Volume) (free *int64, err error) {
	if pool == "" {
		return nil, nil //nolint:nilnil // no host reports the space at a path
	}
	if err := s.pools.CheckKnown(ctx, pool); err != nil {
		return nil, err
	}
	pools, err := s.pools.All(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pools {
		has := slices.ContainsFunc(v.Attachments, func(a api.Attachment) bool { return a.Host == p.Host })
		if p.Name == pool && has && p.CapacityBytes > 0 && (free == nil || p.FreeBytes < *free) {
			free = &p.FreeBytes
		}
	}
	return free, nil
}

func (s *estimateAPI) standstill(ctx context.Context, guests []api.PausedInstance) (seconds float64, err error) {
	of := map[string]int64{}
	for _, g := range guests {
		of[g.Host] += g.MemoryBytes
	}
	for host, bytes := range of {
		rate, err := s.rates.Memory(ctx, host, bytes)
		if err != nil {
			return 0, err
		}
		save, restore, _ := rate.Standstill(bytes, usualRate)
		seconds = max(seconds, (save + restore).Seconds())
	}
	return seconds, nil
}

// copying returns the seconds of the copy, with verification if requested. measured is the rate of
// earlier moves, 0 if unknown.
func copying(bytes int64, opts api.CopyOptions, measured float64) float64 {
	size := float64(bytes)
	if measured > 0 {
		return size / opts.AtMost(measured)
	}
	seconds := size / opts.AtMost(usualRate)
	if opts.Verify != api.VerifyNone {
		seconds += size / usualRate
	}
	return seconds
}

func (s *estimateAPI) memories(ctx context.Context, call store.Call, v api.Volume) ([]api.PausedInstance, error) {
	guests, errs := make([]api.PausedInstance, len(v.Attachments)), make([]error, len(v.Attachments))
	var asked sync.WaitGroup
	for i, a := range v.Attachments {
		asked.Go(func() {
			host, _, err := s.targets.placement.Instance(ctx, a.InstanceID)
			if err == nil {
				err = workflow.CheckGuest(call, "estimate the move of volume "+v.Name+" with all guests paused", workflow.PauseInstance{
					ID: a.InstanceID, Name: a.InstanceID, Host: workflow.PauseHost{ID: host.ID, Name: host.Name},
				})
			}
			if err == nil {
				guests[i], err = askHost(ctx, s.relay, call.Who, host, routes.ShowMemory, a.InstanceID)
			}
			errs[i] = err
		})
	}
	asked.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(guests, func(a, b api.PausedInstance) int {
		return strings.Compare(a.Host+"\n"+a.InstanceName, b.Host+"\n"+b.InstanceName)
	})
	return guests, nil
}
