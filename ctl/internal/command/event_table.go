// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
)

var eventHeader = []string{"   SEQ", "TIME", "WHAT", "OBJECT", "FROM -> TO", "RESULT", "WHO", "HOST", "(REASON)"}

// streamWidths are the widths for events that arrive one by one; most events fit.
var streamWidths = render.Widths{6, 20, 24, 60, 25, 8, 16, 12, 0}

func printEvents(s *session.Session, all []api.Event, known *eventNames) error {
	if len(all) == 0 {
		return nil
	}
	if s.Quiet {
		ids := make([]string, 0, len(all))
		for _, e := range all {
			ids = append(ids, strconv.FormatInt(e.Seq, 10))
		}
		return s.PrintLines(ids...)
	}
	table := render.Table{Header: eventHeader}
	for _, e := range all {
		table.Rows = append(table.Rows, eventCells(e, known))
	}
	_, err := table.Write(s.Stdout, 0)
	return err
}

func eventCells(e api.Event, known *eventNames) []string {
	change := ""
	if e.From != "" || e.To != "" {
		change = fmt.Sprintf("%s -> %s", render.OrDash(e.From), render.OrDash(e.To))
	}
	who := e.Who
	if _, person, ok := strings.Cut(who, api.AskedBy); ok {
		who = person // the daemon has passed that person's request on
	}
	cells := []string{
		fmt.Sprintf("%6d", e.Seq), render.Time(e.At), e.What, known.object(e.Object, e.Details),
		render.OrDash(change), render.OrDash(e.Result), render.OrDash(who), render.OrDash(e.Host),
		strings.Join(slices.DeleteFunc(append(eventReasons(e), postedBy(e)), func(s string) bool { return s == "" }), "  "),
	}
	for i := range cells {
		cells[i] = render.Cell(cells[i])
	}
	return cells
}

func eventReasons(e api.Event) (reasons []string) {
	posted, _ := e.Details["posted"].(map[string]any)
	for _, details := range []map[string]any{e.Details, posted} {
		for _, why := range []string{"reason", "evidence"} {
			if text, ok := details[why].(string); ok && text != "" {
				reasons = append(reasons, "("+text+")")
			}
		}
	}
	return reasons
}

// postedBy returns the requester of an action that a host reported, as that host names it, and
// whether the request had force.
func postedBy(e api.Event) string {
	posted, _ := e.Details["posted"].(map[string]any)
	who, _ := posted["who"].(string)
	if who == "" {
		return ""
	}
	text := "the host names the requester " + who
	if force, _ := posted["force"].(bool); force {
		text += " with force"
	}
	return text
}
