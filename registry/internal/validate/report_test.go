// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

func TestReportsThatAreRefused(t *testing.T) {
	pools := func(n int) func(*api.HostReport) {
		return func(r *api.HostReport) {
			for i := range n {
				r.Pools = append(r.Pools, api.Pool{Name: fmt.Sprint("p", i), Type: "dir"})
			}
		}
	}
	instances := func(n int) func(*api.HostReport) {
		return func(r *api.HostReport) {
			for range n {
				r.Instances = append(r.Instances, api.InstanceReport{ID: uuid.NewString(), State: api.InstanceRunning})
			}
		}
	}
	id := uuid.NewString()
	moving := func(edit func(*api.Migration)) func(*api.HostReport) {
		return func(r *api.HostReport) {
			m := api.Migration{ID: id, State: api.MigrationCopying, Phase: "waiting for guest", BytesTotal: 10, BytesDone: 5}
			edit(&m)
			r.Migrations = []api.Migration{m}
		}
	}
	far := math.Inf(1)
	for name, tc := range map[string]struct {
		edit func(*api.HostReport)
		text string
	}{
		"the most pools":     {pools(256), ""},
		"too many pools":     {pools(257), "257 pools"},
		"a pool twice":       {func(r *api.HostReport) { pools(1)(r); pools(1)(r) }, "twice"},
		"the most instances": {instances(4096), ""},
		"too many instances": {instances(4097), "4097 instances"},
		"an instance in two states": {func(r *api.HostReport) {
			r.Instances = []api.InstanceReport{{ID: id, State: "running"}, {ID: id, State: "stopped"}}
		}, "twice"},
		"progress":                     {moving(func(*api.Migration) {}), ""},
		"negative bytes":               {moving(func(m *api.Migration) { m.BytesDone = -5 }), "out of range"},
		"more bytes than any disk has": {moving(func(m *api.Migration) { m.BytesDone = 1e18 }), "out of range"},
		"a negative rate":              {moving(func(m *api.Migration) { m.RateBytesPerSecond = -1 }), "out of range"},
		"an endless stall":             {moving(func(m *api.Migration) { m.StallMS.Switch = &far }), "out of range"},
		"a phase with an escape":       {moving(func(m *api.Migration) { m.Phase = "\x1b[2J" }), "phase"},
		"a phase that is a novel":      {moving(func(m *api.Migration) { m.Phase = strings.Repeat("x", 65) }), "phase"},
		"an error that is a novel":     {moving(func(m *api.Migration) { m.Error = &api.Error{Message: strings.Repeat("x", 1<<16)} }), "longer than"},
		"a migration twice":            {func(r *api.HostReport) { r.Migrations = []api.Migration{{ID: id}, {ID: id}} }, "twice"},
		"migrations without number":    {func(r *api.HostReport) { r.Migrations = make([]api.Migration, 1025) }, "1025 migrations"},
	} {
		t.Run(name, func(t *testing.T) {
			in := api.HostReport{ID: uuid.NewString(), Name: "a", Epoch: 1}
			tc.edit(&in)
			err := Report(in)
			if tc.text == "" && err != nil {
				t.Error(err)
			}
			if tc.text != "" && (api.CodeOf(err) != api.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), tc.text)) {
				t.Errorf("error = %s %v, want one with %q", api.CodeOf(err), err, tc.text)
			}
		})
	}
}
