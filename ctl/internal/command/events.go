// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
		return followEvents(c.Context, s, since, func(e api.Event) bool { return matches(c, "host", e.Host) })
	}
	all, err := eventsSince(c.Context, s, since, last, c.IsSet("host"))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e api.Event) bool { return !matches(c, "host", e.Host) })
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
	known := newEventNames(c.Context, s)
	if len(all) > 0 && !s.Quiet {
		if err := s.PrintLines(eventHeader); err != nil {
			return err
		}
	}
	for _, e := range all {
		if err := printEvent(s, e, known); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		s.Say("No event since number %d.", since)
	}
	return nil
}

// eventsSince reads the audit trail after event since, page by page; only the end of it
// where last is enough of it, and no others are to be left out.
func eventsSince(ctx context.Context, s *session.Session, since int64, last int, some bool) ([]api.Event, error) {
	if last > 0 && last <= onePage && !some {
		end, _, err := session.List(ctx, s, routes.ListEvents.With("since", strconv.FormatInt(since, 10)).With("last", strconv.Itoa(last)))
		// An older registry does not know the parameter, and one answer has room for so much.
		if err == nil && (len(end) == last || len(end) == 0 || end[0].Seq == since+1) {
			return end, nil
		}
		if err != nil && api.CodeOf(err) != api.CodeInvalidArgument {
			return nil, err
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

// onePage is how many events one answer may have.
const onePage = 1000

func followEvents(ctx context.Context, s *session.Session, since int64, keep func(api.Event) bool) error {
	f := session.Follower{
		Open: session.Events(s, routes.ListEvents.With("follow", "1")),
		// The trail has no end; asking shows whether the other side is there.
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

// eventNames finds the names of the things that events are about. It reads each list once,
// when a name in it is first asked for.
type eventNames struct {
	load        func(collection string) map[string]string
	attachments func() []api.Attachment
	loaded      map[string]map[string]string
}

func newEventNames(ctx context.Context, s *session.Session) *eventNames {
	return &eventNames{
		load: func(collection string) map[string]string { return session.Names(ctx, s, collection) },
		attachments: func() []api.Attachment {
			all, _, _ := session.List(ctx, s, routes.ListAttachments)
			return all
		},
		loaded: map[string]map[string]string{},
	}
}

// attachment is the name of an attachment, made of those of its volume and its instance.
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

// object is an event's object, "volume/ID", followed by its name. The name is the one that the
// event itself has, which the thing had then, or the one that the thing has now.
func (n *eventNames) object(object string, details map[string]any) string {
	kind, id, _ := strings.Cut(object, "/")
	if name := nameIn(kind, details); name != "" {
		return object + " (" + name + ")"
	}
	if kind == "attachment" {
		if name := n.attachment(id); name != "" {
			return object + " (" + name + ")"
		}
		return object
	}
	collection, named := map[string]string{"volume": "volumes", "instance": "instances", "host": "hosts", "type": "types"}[kind]
	if !named {
		return object
	}
	if _, there := n.loaded[collection]; !there {
		n.loaded[collection] = n.load(collection)
	}
	if name := n.loaded[collection][id]; name != "" {
		return object + " (" + name + ")"
	}
	return object
}

// nameIn is the name that the details of an event, or those that a host posted, have for an
// object of this kind.
func nameIn(kind string, details map[string]any) string {
	posted, _ := details["posted"].(map[string]any)
	text := func(key string) string {
		for _, from := range []map[string]any{details, posted} {
			if s, ok := from[key].(string); ok && s != "" {
				return s
			}
		}
		return ""
	}
	volume, instance := text("volume_name"), text("instance_name")
	switch {
	case kind == "migration" && volume != "":
		return "of " + volume
	case kind == "attachment" && volume != "" && instance != "":
		return volume + " at " + instance
	case kind == "drain":
		if pool := text("pool"); pool != "" {
			return "of pool " + pool
		}
	case kind == "volume", kind == "instance", kind == "type":
		return text("name")
	}
	return ""
}

// eventHeader is the line above events, in the order of eventLine.
const eventHeader = "   SEQ  TIME                  WHAT                      OBJECT  FROM -> TO  RESULT  WHO  HOST  (REASON)"

func printEvent(s *session.Session, e api.Event, known *eventNames) error {
	switch {
	case s.JSON:
		return render.JSONLine(s.Stdout, struct {
			SchemaVersion int       `json:"schema_version"`
			Event         api.Event `json:"event"`
		}{api.SchemaVersion, e})
	case s.Quiet:
		return s.PrintLines(strconv.FormatInt(e.Seq, 10))
	}
	e.Object = known.object(e.Object, e.Details)
	return s.PrintLines(render.Cell(eventLine(e)))
}

// eventLine is one event: number, time, what and object, and then who, where, from, to and
// result as far as they are known.
func eventLine(e api.Event) string {
	line := fmt.Sprintf("%6d  %s  %-24s  %s", e.Seq, render.Time(e.At), e.What, e.Object)
	if e.From != "" || e.To != "" {
		line += fmt.Sprintf("  %s -> %s", render.OrDash(e.From), render.OrDash(e.To))
	}
	who := e.Who
	if _, person, ok := strings.Cut(who, api.AskedBy); ok {
		who = person // of whom the daemon is the messenger
	}
	for _, part := range []string{e.Result, who, e.Host} {
		if part != "" {
			line += "  " + part
		}
	}
	posted, _ := e.Details["posted"].(map[string]any)
	for _, details := range []map[string]any{e.Details, posted} {
		for _, why := range []string{"reason", "evidence"} {
			if text, ok := details[why].(string); ok && text != "" {
				line += fmt.Sprintf("  (%s)", text)
			}
		}
	}
	return strings.TrimRight(line+postedBy(e), " ")
}

// postedBy says who asked a host for what it posted, and whether with force. Only the host
// says so: the registry has not seen the request.
func postedBy(e api.Event) string {
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
