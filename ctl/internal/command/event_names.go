// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"strings"

	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// eventNames finds the names of things in events.
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

// object returns an event's object, "volume/ID", with the event's name for it, otherwise its
// present name.
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
