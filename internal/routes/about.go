// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes about the program itself, its operations and events.
var (
	ShowStatus = get[api.Status]("/v1/status",
		"Show how this program is, and what it depends on", registry(anyOf), daemon(Answers))
	// The version documents of the two programs differ.
	ShowDaemonVersion = get[map[string]string]("/v1/version",
		"Show the version of this program", daemon(Answers))
	ShowRegistryVersion = get[string]("/v1/version",
		"Show the version of this program", registry(anyOf))
	ShowOpenAPI = get[None]("/v1/openapi.json",
		"Show this API as an OpenAPI document", registry(anyOf), daemon(Answers))
	RunDoctor = get[[]api.Check]("/v1/doctor",
		"Show what on this host would stop a migration", daemon(Answers))
	FixDoctor = post[None, []api.Fix]("/v1/doctor",
		"Mend what can be mended on this host without touching a guest, and show what was done", daemon(Answers))

	ListOps = get[[]api.Op]("/v1/ops",
		"List the operations of a host that are not finished", registry(never, "host"), daemon(Answers))
	ShowOp = get[api.Op]("/v1/ops/{op}",
		"Show an operation", registry(never), daemon(Answers, waitParameter))
	FollowOp = stream("/v1/ops/{op}/events",
		"Follow an operation", registry(never), daemon(Streams))

	ListEvents = get[[]api.Event]("/v1/events",
		"List the events of the audit trail after since, at most 1000 and about 1 MiB (an empty list is its end), or with last=N the last N of them, or with follow=1 follow it as a stream",
		registry(never), daemon(PassesOn), query("since", "last", "follow"))
	PostEvent = report[api.EventPost, api.Event]("/v1/events",
		"Add an event of a host to the audit trail")
)
