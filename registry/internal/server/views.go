// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// views adds to migrations their last reported progress.
type views struct {
	migrations *store.Migrations
	progress   *store.Progress
	pauses     *workflow.Pauses
	relay      *relay.Relay
}

func (s *views) open(ctx context.Context) ([]api.Migration, error) {
	open, err := s.migrations.All(ctx, "", false, store.Viewer{})
	for i := range open {
		open[i] = s.withProgress(ctx, open[i])
	}
	return open, err
}

func (s *views) migration(ctx context.Context, ref string, as store.Viewer) (api.Migration, error) {
	m, err := s.migrations.Get(ctx, ref, as)
	if err != nil {
		return m, err
	}
	return s.withProgress(ctx, m), nil
}

// followed has, in order, the states that a host enters before it notifies the registry.
var followed = []api.MigrationState{api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCopied}

// withProgress adds to an open migration its last reported progress. Locations and host stay, and
// so does the state, unless the host may be in a later one.
func (s *views) withProgress(ctx context.Context, m api.Migration) api.Migration {
	if m.LedByRegistry() {
		return s.pausedNow(ctx, m)
	}
	live, ok := s.progress.Of(m.ID)
	if !ok || m.State.Final() {
		return m
	}
	if slices.Index(followed, live.State) > slices.Index(followed, m.State) && slices.Contains(followed, m.State) {
		m.State = live.State
	}
	if live.State == m.State {
		m.Phase = live.Phase
	}
	return withHostView(m, live)
}

// withHostView adds the values that only the host has: progress, stalls, options of the copy.
func withHostView(m, host api.Migration) api.Migration {
	m.BytesDone, m.BytesTotal, m.RateBytesPerSecond = host.BytesDone, host.BytesTotal, host.RateBytesPerSecond
	m.OverlayBytes = host.OverlayBytes
	m.StallMS, m.ExposedSeconds, m.OverlayShared = host.StallMS, host.ExposedSeconds, host.OverlayShared
	m.SetCopyOptions(host.CopyOptions())
	m.Pacing = host.Pacing
	m.ExternalCopy, m.DeleteSource, m.Composite = host.ExternalCopy, host.DeleteSource, host.Composite
	m.Remark, m.DstAfter = cmp.Or(m.Remark, host.Remark), host.DstAfter
	if m.Error == nil {
		m.Error = host.Error
	}
	if !m.State.Final() {
		m.StoppedAt = host.StoppedAt
		m.GuestPaused, m.GuestNotResumed, m.GuestThrottled, m.ChainProblem = host.GuestPaused, host.GuestNotResumed, host.GuestThrottled, host.ChainProblem
	}
	return m
}

// pausedNow completes the view of a move that the registry leads, with the copy host's progress,
// and the disconnected hosts that the move waits for.
func (s *views) pausedNow(ctx context.Context, m api.Migration) api.Migration {
	live, ok := s.progress.Of(m.ID)
	switch {
	case m.State == api.MigrationCompleted || m.State == api.MigrationCompleting:
		m.BytesDone = m.BytesTotal
	case ok && m.Phase == string(workflow.PauseCopying) && m.Method == api.MethodSave:
		m.BytesDone, m.RateBytesPerSecond = live.BytesDone, live.RateBytesPerSecond
	}
	if m.Error == nil && !m.State.Final() {
		m.Error = s.waitsFor(ctx, m.ID)
	}
	return m
}

func waitedFor(p workflow.Pause, g workflow.PauseInstance) bool {
	if g.Lost {
		return false
	}
	switch p.Phase {
	case workflow.PauseChecking:
		return g.State == workflow.PausePending && p.Live == nil
	case workflow.PauseSuspending:
		return g.State == workflow.PauseChecked
	case workflow.PauseSaving:
		return g.State == workflow.PauseSuspended
	case workflow.PauseRestoring, workflow.PauseCancelling, workflow.PauseAgain:
		return g.State != workflow.PauseRestored && (g.State != workflow.PauseReady || p.Resuming)
	case workflow.PauseCopying, workflow.PauseMaking, workflow.PauseTracking, workflow.PauseSwapping, workflow.PauseLast, workflow.PauseDone:
	}
	return false
}

// ends reports whether in this phase a move removes its src or dst (Pause.DropEnd).
func ends(phase workflow.PausePhase) bool {
	return phase == workflow.PauseCancelling || phase == workflow.PauseRestoring
}

// waitsFor names the disconnected hosts that a move led by the registry waits for, nil if there
// are none or if this is unknown.
func (s *views) waitsFor(ctx context.Context, id string) *api.Error {
	p, err := s.pauses.Get(ctx, id)
	if err != nil {
		return nil //nolint:nilerr // the view must not fail
	}
	away := []string{}
	for _, g := range p.Instances {
		if waitedFor(p, g) && !s.relay.Present(g.Host.ID) {
			away = append(away, g.Host.Name+" (instance "+g.Name+")")
		}
	}
	if p.Live != nil {
		for _, h := range p.Live.Hosts {
			if _, left := p.LiveNext(h); left && !s.relay.Present(h.ID) {
				away = append(away, h.Name+" (what its guests write)")
			}
		}
	}
	if (p.Phase == workflow.PauseCopying && p.Live == nil || p.DropEnd != "" && ends(p.Phase)) && !s.relay.Present(p.CopyHost.ID) {
		away = append(away, p.CopyHost.Name+" (the copy)")
	}
	if len(away) == 0 {
		return nil
	}
	return api.Errorf(api.CodeHypervisorUnavailable, "it waits for what is not there: host %s; fence it if it does not come back", strings.Join(away, ", host "))
}
