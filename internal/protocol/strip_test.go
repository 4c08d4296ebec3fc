// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

func TestAReportForAnOlderProgramHasNothingThatItMayLeaveUnread(t *testing.T) {
	now := time.Now()
	report := api.HostReport{
		ID: "h", Instances: []api.InstanceReport{{ID: "i", Note: "n", Differs: true}},
		Migrations: []api.Migration{{ID: "m", State: api.MigrationCopying, Pace: "gentle", Pacing: "half", StartedAt: &now, StoppedAt: &now}},
	}
	text, err := json.Marshal(WithoutIgnorable(report))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pace", "pacing", "differs", "stopped_at"} {
		if strings.Contains(string(text), `"`+name+`"`) {
			t.Errorf("%s is in %s", name, text)
		}
	}
	for _, name := range []string{`"n"`, `"m"`, `"started_at":"`} {
		if !strings.Contains(string(text), name) {
			t.Errorf("%s is not in %s", name, text)
		}
	}
	if m := report.Migrations[0]; m.Pace != "gentle" || m.StoppedAt == nil || !report.Instances[0].Differs {
		t.Errorf("the report itself was changed: %+v", report)
	}
}

func TestAProgramThatAnnouncesNothingIsOfTheFirst(t *testing.T) {
	h := http.Header{}
	if !AnnouncedIn(h).IsFirst() {
		t.Error("one that announces nothing is not")
	}
	Announce(h)
	if AnnouncedIn(h).IsFirst() {
		t.Error("this one is")
	}
}
