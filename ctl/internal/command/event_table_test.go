// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

func TestEventsThatComeOneByOneAreAligned(t *testing.T) {
	known := &eventNames{load: func(string) map[string]string { return nil }, loaded: map[string]map[string]string{}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const id = "11111111-1111-4111-8111-111111111111"
	events := []api.Event{
		{Seq: 1, At: at, What: "host.fence", Object: "host/" + id, Who: "uid=0", Host: "h1", Details: map[string]any{"reason": "why"}},
		{Seq: 123456, At: at, What: "migration.pause_instance", Object: "migration/" + id, From: "copying", To: "needs_operator", Result: "ok", Host: "h1", Details: map[string]any{"reason": "why", "volume_name": "db"}},
		{Seq: 12, At: at, What: "x", Object: "volume/" + id, Who: "drain", Host: "h1", Details: map[string]any{"evidence": "why", "name": "d\u00e4ta"}},
	}
	var columns []int
	for _, e := range events {
		line := []rune(streamWidths.Line(eventCells(e, known)))
		at := strings.Index(string(line), "(why)")
		columns = append(columns, len([]rune(string(line)[:at])))
	}
	if columns[0] != columns[1] || columns[1] != columns[2] {
		t.Errorf("the reasons begin at %v", columns)
	}
}

func TestWhatIsWiderThanItsColumnIsNotCut(t *testing.T) {
	name := strings.Repeat("n", 90)
	line := streamWidths.Line([]string{"     1", "-", "w", name, "-", "-", "-", "-", ""})
	if !strings.Contains(line, "  "+name+"  -  ") || strings.HasSuffix(line, " ") {
		t.Errorf("got %q", line)
	}
}
