// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "show the audit trail: what was done, when, by whom",
		Description: "Each line begins with its number, which --since takes. With -o json there is one object,\n" +
			"{\"schema_version\":1,\"events\":[...]}, and with --follow one line {\"schema_version\":1,\"event\":{...}}\n" +
			"for each.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with new events until Ctrl-C"},
			&cli.Int64Flag{Name: "since", Usage: "begin after event number `SEQ`"},
			&cli.IntFlag{Name: "last", DefaultText: "all", Usage: "only the last `N`"},
		}, filterFlags("host")...),
		Action: withSession(events),
	}
}

func events(c *cli.Context, s *session) error {
	since := c.Int64("since")
	if since < 0 {
		return usagef("events: --since %d is below zero: give the number of an event, or 0 for all", since)
	}
	last := c.Int("last")
	if c.IsSet("last") && (last < 1 || c.Bool("follow")) {
		return usagef("events: --last is a number from 1, and does not go with --follow")
	}
	if c.Bool("follow") {
		return s.followEvents(c.Context, since, func(e api.Event) bool { return fits(c, "host", e.Host) })
	}
	all, err := s.eventsSince(c.Context, since)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e api.Event) bool { return !fits(c, "host", e.Host) })
	if last > 0 && len(all) > last {
		all = all[len(all)-last:]
	}
	if s.json {
		doc, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("encode events: %w", err)
		}
		return render.JSON(s.stdout, answer{}.with("events", doc).members)
	}
	known := s.newEventNames(c.Context)
	for _, e := range all {
		if err := s.printEvent(e, known); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		s.say("No event since number %d.", since)
	}
	return nil
}

// eventsSince is the trail after event since; it is answered in pages.
func (s *session) eventsSince(ctx context.Context, since int64) ([]api.Event, error) {
	all := []api.Event{}
	for {
		page, _, err := list(ctx, s, routes.ListEvents.With("since", strconv.FormatInt(since, 10)))
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		since = page[len(page)-1].Seq
	}
}

func (s *session) followEvents(ctx context.Context, since int64, keep func(api.Event) bool) error {
	f := follower{
		open: func(ctx context.Context, since int64) iter.Seq2[api.Event, error] {
			return s.stream(ctx, routes.ListEvents.With("follow", "1").With("since", strconv.FormatInt(since, 10)).PathOf())
		},
		// The trail has no end; asking shows whether the other side is there.
		ended: func(ctx context.Context) (bool, error) {
			_, err := get(ctx, s, routes.ShowRegistryVersion)
			return false, err
		},
		lost: s.newDisplay().lost,
	}
	var failed error
	known := s.newEventNames(ctx)
	err := f.run(ctx, since, func(e api.Event) bool {
		if keep(e) {
			failed = s.printEvent(e, known)
		}
		return failed == nil
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return errors.Join(failed, err)
}

// eventNames finds the names of the things that events are about, by the lists of
// when they are first asked for.
type eventNames struct {
	load        func(nouns string) map[string]string
	attachments func() []api.Attachment
	loaded      map[string]map[string]string
}

func (s *session) newEventNames(ctx context.Context) *eventNames {
	return &eventNames{
		load: func(nouns string) map[string]string { return names(ctx, s, nouns) },
		attachments: func() []api.Attachment {
			all, _, _ := list(ctx, s, routes.ListAttachments)
			return all
		},
		loaded: map[string]map[string]string{},
	}
}

// attachment is the name of an attachment: those of its volume and its instance.
func (n *eventNames) attachment(id string) string {
	const nouns = "attachments"
	if n.loaded[nouns] == nil {
		n.loaded[nouns] = map[string]string{}
		for _, a := range n.attachments() {
			if a.VolumeName != "" {
				n.loaded[nouns][a.ID] = a.VolumeName + " at " + a.InstanceName
			}
		}
	}
	return n.loaded[nouns][id]
}

// object is an event's object, "volume/ID", with its name where it has one.
func (n *eventNames) object(object string) string {
	kind, id, _ := strings.Cut(object, "/")
	if kind == "attachment" {
		if name := n.attachment(id); name != "" {
			return object + " (" + name + ")"
		}
		return object
	}
	nouns, named := map[string]string{"volume": "volumes", "instance": "instances", "host": "hosts", "type": "types"}[kind]
	if !named {
		return object
	}
	if _, there := n.loaded[nouns]; !there {
		n.loaded[nouns] = n.load(nouns)
	}
	if name := n.loaded[nouns][id]; name != "" {
		return object + " (" + name + ")"
	}
	return object
}

func (s *session) printEvent(e api.Event, known *eventNames) error {
	switch {
	case s.json:
		return render.JSONLine(s.stdout, struct {
			SchemaVersion int       `json:"schema_version"`
			Event         api.Event `json:"event"`
		}{api.SchemaVersion, e})
	case s.quiet:
		return s.printLines(strconv.FormatInt(e.Seq, 10))
	}
	e.Object = known.object(e.Object)
	return s.printLines(render.Cell(eventLine(e)))
}

// eventLine is one event: number, time, what, and as much as there is of who,
// where, from, to and result.
func eventLine(e api.Event) string {
	line := fmt.Sprintf("%6d  %s  %-24s  %s", e.Seq, render.Time(e.At), e.What, e.Object)
	if e.From != "" || e.To != "" {
		line += fmt.Sprintf("  %s -> %s", render.OrDash(e.From), render.OrDash(e.To))
	}
	for _, part := range []string{e.Result, e.Who, e.Host} {
		if part != "" {
			line += "  " + part
		}
	}
	for _, why := range []string{"reason", "evidence"} {
		if text, ok := e.Details[why].(string); ok && text != "" {
			line += fmt.Sprintf("  (%s)", text)
		}
	}
	return strings.TrimRight(line+asked(e), " ")
}

// asked is who asked a host for what it has posted, and whether with force, by the word
// of that host: the registry has not seen it.
func asked(e api.Event) string {
	posted, _ := e.Details["posted"].(map[string]any)
	who, _ := posted["who"].(string)
	if who == "" {
		return ""
	}
	text := "  by its word asked by " + who
	if force, _ := posted["force"].(bool); force {
		text += " with force"
	}
	return text
}
