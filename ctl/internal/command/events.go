// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "show the audit trail: every change, its time and its author",
		Description: "Each line begins with its number, which --since takes. With -o json there is one object,\n" +
			"{\"schema_version\":1,\"events\":[...]}, and with --follow one line {\"schema_version\":1,\"event\":{...}}\n" +
			"for each.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "then wait for new events, until Ctrl-C"},
			&cli.Int64Flag{Name: "since", Usage: "begin after event number `SEQ`"},
			&cli.IntFlag{Name: "last", DefaultText: "all", Usage: "only the last `N`"},
		}, filterFlags("host")...),
		Action: withSession(events),
	}
}

func events(c *cli.Context, s *session.Session) error {
	since := c.Int64("since")
	if since < 0 {
		return cmdline.Usagef("events: --since %d is below zero: give the number of an event, or 0 for all", since)
	}
	last := c.Int("last")
	if c.IsSet("last") && (last < 1 || c.Bool("follow")) {
		return cmdline.Usagef("events: --last is a number from 1, and does not go with --follow")
	}
	if c.Bool("follow") {
		if err := checkHost(c, s, 0); err != nil {
			return err
		}
		return followEvents(c.Context, s, since, func(e api.Event) bool { return matches(c, "host", e.Host) })
	}
	all, err := eventsSince(c.Context, s, since, last, c.IsSet("host"))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e api.Event) bool { return !matches(c, "host", e.Host) })
	if err := checkHost(c, s, len(all)); err != nil {
		return err
	}
	if last > 0 && len(all) > last {
		all = all[len(all)-last:]
	}
	if s.JSON {
		doc, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("encode events: %w", err)
		}
		return render.JSON(s.Stdout, session.Response{}.With("events", doc).Members)
	}
	if err := printEvents(s, all, newEventNames(c.Context, s)); err != nil {
		return err
	}
	if len(all) == 0 {
		s.Say("No event since number %d.", since)
	}
	return nil
}

// eventsSince reads the audit trail after the event number since, page by page. If last is set, it
// reads only the last events, unless the caller filters them (filtered).
func eventsSince(ctx context.Context, s *session.Session, since int64, last int, filtered bool) ([]api.Event, error) {
	if last > 0 && last <= onePage && !filtered {
		end, _, err := session.List(ctx, s, routes.ListEvents.With("since", strconv.FormatInt(since, 10)).With("last", strconv.Itoa(last)))
		if err != nil {
			return nil, err
		}
		// Answers are limited in size: if events are missing, the trail is read page by page.
		if len(end) == last || len(end) == 0 || end[0].Seq == since+1 {
			return end, nil
		}
	}
	all := []api.Event{}
	for {
		page, _, err := session.List(ctx, s, routes.ListEvents.With("since", strconv.FormatInt(since, 10)))
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		since = page[len(page)-1].Seq
	}
}

// onePage is the most events in one answer.
const onePage = 1000

func followEvents(ctx context.Context, s *session.Session, since int64, keep func(api.Event) bool) error {
	f := session.Follower{
		Open: session.Events(s, routes.ListEvents.With("follow", "1")),
		// The trail has no end; the request shows whether the other side answers.
		Ended: func(ctx context.Context) (bool, error) {
			_, err := session.Get(ctx, s, routes.ShowRegistryVersion)
			return false, err
		},
		OnOutage: s.NewDisplay().Outage,
	}
	var failed error
	known := newEventNames(ctx, s)
	err := f.Run(ctx, since, func(e api.Event) bool {
		if keep(e) {
			failed = printEvent(s, e, known)
		}
		return failed == nil
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return errors.Join(failed, err)
}

func printEvent(s *session.Session, e api.Event, known *eventNames) error {
	if s.JSON {
		return render.JSONLine(s.Stdout, struct {
			SchemaVersion int       `json:"schema_version"`
			Event         api.Event `json:"event"`
		}{api.SchemaVersion, e})
	}
	if s.Quiet {
		return s.PrintLines(strconv.FormatInt(e.Seq, 10))
	}
	return s.PrintLines(streamWidths.Line(eventCells(e, known)))
}
