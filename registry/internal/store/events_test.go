// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

func TestEveryChangeLeavesAnEvent(t *testing.T) {
	s := newSite(t)
	must(s.RegisterMigration(t.Context(), Call{Who: "uid=7", Key: "key-1"}, rootMigration()))(t)
	must(s.TransitionMigration(t.Context(), nobody, move, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	must(s.PostEvent(t.Context(), nobody, api.EventPost{What: "guard.set", Object: "instance/" + web, At: time.Unix(1, 0)}))(t)
	events := must(s.Events(t.Context(), 0))(t)
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
	if rest := must(s.Events(t.Context(), 6))(t); len(rest) != 1 || rest[0].At.Equal(time.Unix(1, 0)) || rest[0].Details["at"] != "1970-01-01T00:00:01Z" {
		t.Errorf("events after 6 = %+v", rest)
	}
}

func TestAuditTrailShowsThatItWasChanged(t *testing.T) {
	for name, tamper := range map[string]string{
		"changed content": `UPDATE events SET content = json_set(content, '$.who', 'somebody else') WHERE seq = 2`,
		"removed event":   `DELETE FROM events WHERE seq = 2`,
		"swapped events":  `UPDATE events SET content = (SELECT content FROM events WHERE seq = 3) WHERE seq = 2`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if n := must(s.VerifyAudit(t.Context()))(t); n != 4 {
				t.Errorf("events = %d, want 4", n)
			}
			if _, err := s.db.Write.ExecContext(t.Context(), tamper); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("tampering through the program: error = %v", err)
			}
			if _, err := s.db.Write.ExecContext(t.Context(), "DROP TRIGGER events_are_not_changed; DROP TRIGGER events_are_not_removed; "+tamper); err != nil {
				t.Fatal(err)
			}
			if _, err := s.VerifyAudit(t.Context()); err == nil || !strings.Contains(err.Error(), "event 2") {
				t.Errorf("error = %v, want one that names event 2", err)
			}
		})
	}
}

func TestFollowerIsWokenByACommit(t *testing.T) {
	s := newSite(t)
	next := s.NextCommit()
	select {
	case <-next:
		t.Fatal("woken before anything happened")
	default:
	}
	must(s.PostEvent(t.Context(), nobody, api.EventPost{What: "x"}))(t)
	<-next
}

func TestRehashedEventBreaksTheChainAfterIt(t *testing.T) {
	s := newSite(t)
	var first, content []byte
	if err := s.db.Read.QueryRowContext(t.Context(), "SELECT a.hash, b.content FROM events a JOIN events b ON b.seq = 2 WHERE a.seq = 1").Scan(&first, &content); err != nil {
		t.Fatal(err)
	}
	forged := []byte(strings.Replace(string(content), `"who":"test"`, `"who":"fake"`, 1))
	if _, err := s.db.Write.ExecContext(t.Context(), "DROP TRIGGER events_are_not_changed"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Write.ExecContext(t.Context(), "UPDATE events SET content = ?, hash = ? WHERE seq = 2", string(forged), chain(first, forged)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.VerifyAudit(t.Context()); err == nil || !strings.Contains(err.Error(), "event 3") {
		t.Errorf("error = %v, want one that names event 3", err)
	}
}
