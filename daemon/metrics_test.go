// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/metrics"
	"github.com/volferry/volferry/daemon/internal/op"
)

// A cancel that waits for a copy has the same disk, which is sampled once.
func TestMetricsSeeEachDiskThatMovesOnceAndCountParkedOps(t *testing.T) {
	on := func(kind, instance, target string, state op.State) op.Status {
		input, err := json.Marshal(map[string]any{"spec": map[string]string{"instance_id": instance, "target": target}})
		if err != nil {
			t.Fatal(err)
		}
		return op.Status{Op: op.Op{Kind: kind, Input: input}, State: state}
	}
	active := []op.Status{
		on("migration_copy", "web", "vda", op.StateRunning),
		on("migration_cancel", "web", "vda", op.StateRunning),
		on("migration_copy", "db", "vdb", op.StateUndoing),
		on("migration_complete", "mail", "vda", op.StateNeedsOperator),
		on("migration_start", "", "", op.StateRunning), // not attached
		on("volume_delete", "", "", op.StateNeedsOperator),
	}
	want := []metrics.GuestDisk{{InstanceID: "web", Target: "vda"}, {InstanceID: "db", Target: "vdb"}}
	if diff := cmp.Diff(want, guestDisks(active)); diff != "" {
		t.Errorf("disks (-want +got)\n%s", diff)
	}
	if n := parked(active); n != 2 {
		t.Errorf("%d ops wait for the operator, want 2", n)
	}
}
