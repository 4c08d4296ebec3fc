// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
)

// The ops of a migration, by the steps that they choose.
const (
	startOverlay           = "start"
	startOffline           = "start offline"
	startMirror            = "start mirror"
	copyFrozen             = "copy"
	mirror                 = "mirror"
	beginMirror            = "begin mirror"
	completeLive           = "complete live"
	completeLiveHeld       = "complete live held"
	completeBackground     = "complete background"
	completeBackgroundHeld = "complete background held"
	completeCold           = "complete cold"
	completeOffline        = "complete offline"
	completeMirror         = "complete mirror"
	cancelLive             = "cancel live"
	cancelLiveHeld         = "cancel live held"
	cancelCold             = "cancel cold"
	cancelOffline          = "cancel offline"
	cancelMirror           = "cancel mirror"
	cancelCommitted        = "cancel committed"
	release                = "release"
	rollbackLive           = "rollback live"
	rollbackLiveHeld       = "rollback live held"
	rollbackCold           = "rollback cold"
)

type way struct {
	goal move.Goal
	plans.Way
}

var ways = map[string]way{
	startOverlay:           {move.GoalStart, plans.Way{Method: move.MethodOverlay}},
	startOffline:           {move.GoalStart, plans.Way{Method: move.MethodOffline}},
	startMirror:            {move.GoalStart, plans.Way{Method: move.MethodMirror}},
	copyFrozen:             {move.GoalCopy, plans.Way{Method: move.MethodOverlay}},
	mirror:                 {move.GoalCopy, plans.Way{Method: move.MethodMirror}},
	beginMirror:            {move.GoalCopy, plans.Way{Method: move.MethodMirror, OnlyBegins: true}},
	completeLive:           {move.GoalComplete, plans.Way{Method: move.MethodOverlay, Running: true}},
	completeLiveHeld:       {move.GoalComplete, plans.Way{Method: move.MethodOverlay, Running: true, Held: true}},
	completeBackground:     {move.GoalComplete, plans.Way{Method: move.MethodOverlay, Running: true, Background: true}},
	completeBackgroundHeld: {move.GoalComplete, plans.Way{Method: move.MethodOverlay, Running: true, Background: true, Held: true}},
	completeCold:           {move.GoalComplete, plans.Way{Method: move.MethodOverlay}},
	completeOffline:        {move.GoalComplete, plans.Way{Method: move.MethodOffline}},
	completeMirror:         {move.GoalComplete, plans.Way{Method: move.MethodMirror}},
	cancelLive:             {move.GoalCancel, plans.Way{Method: move.MethodOverlay, Running: true}},
	cancelLiveHeld:         {move.GoalCancel, plans.Way{Method: move.MethodOverlay, Running: true, Held: true}},
	cancelCold:             {move.GoalCancel, plans.Way{Method: move.MethodOverlay}},
	cancelOffline:          {move.GoalCancel, plans.Way{Method: move.MethodOffline}},
	cancelMirror:           {move.GoalCancel, plans.Way{Method: move.MethodMirror}},
	cancelCommitted:        {move.GoalCancel, plans.Way{Method: move.MethodOverlay, Running: true, Committed: true}},
	release:                {move.GoalCancel, plans.Way{Method: move.MethodOverlay, Lost: true}},
	rollbackLive:           {move.GoalCancel, plans.Way{Method: move.MethodOverlay, Running: true, Ended: true}},
	rollbackLiveHeld:       {move.GoalCancel, plans.Way{Method: move.MethodOverlay, Running: true, Held: true, Ended: true}},
	rollbackCold:           {move.GoalCancel, plans.Way{Method: move.MethodOverlay, Ended: true}},
}

// A step that no op has would be dead code.
func TestEachStepOfAKindIsChosenByAnOp(t *testing.T) {
	env := plans.NewEnv(migratetest.NewWorld(t, "").Ports(), migratetest.FakeHistory{}, nil, func(string) {}, slog.New(slog.DiscardHandler))
	chosen := map[string][]op.StepRef{}
	for _, w := range ways {
		planned := env.Plan(w.goal, w.Way)
		chosen[planned.Kind] = append(chosen[planned.Kind], planned.Steps...)
	}
	for _, plan := range env.Plans() {
		for _, ref := range plan.Refs() {
			if plan.MustChoose && !slices.Contains(chosen[plan.Kind], ref) {
				t.Errorf("no op of %s has step %s", plan.Kind, ref)
			}
		}
	}
}
