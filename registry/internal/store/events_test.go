// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

func TestEveryChangeLeavesAnEvent(t *testing.T) {
	s := newSite(t)
	must(s.Migrations.Register(t.Context(), Call{Who: "uid=7", Key: "key-1"}, rootMigration()))(t)
	must(s.Migrations.Transition(t.Context(), nobody, move, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	must(s.Trail.Post(t.Context(), nobody, api.EventPost{What: "guard.set", Object: "instance/" + web, At: time.Unix(1, 0)}))(t)
	events := must(s.Trail.Events(t.Context(), 0))(t)
	var what []string
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has sequence number %d", i+1, e.Seq)
		}
		what = append(what, e.What)
	}
	want := []string{
		"host.register", "host.register", "instance.register", "volume.register", "migration.register", "migration.transition", "posted.guard.set",
	}
	if diff := cmp.Diff(want, what); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if e := events[4]; e.Who != "uid=7" || e.OpID != "op-1" || e.Host != "a" || e.Object != "migration/"+move {
		t.Errorf("event = %+v", e)
	}
	if e := events[5]; e.From != "starting" || e.To != "cancelled" {
		t.Errorf("event = %+v", e)
	}
	if rest := must(s.Trail.Events(t.Context(), 6))(t); len(rest) != 1 || rest[0].At.Equal(time.Unix(1, 0)) || rest[0].Details["at"] != "1970-01-01T00:00:01Z" {
		t.Errorf("events after 6 = %+v", rest)
	}
}
