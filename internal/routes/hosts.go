// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// Routes of hosts and their tasks.
var (
	ListHosts = get[[]api.Host]("/v1/hosts",
		"List the hosts", registry(own), daemon(Remembers), paged(hostOrder))
	ShowHost = get[api.Host]("/v1/hosts/{host}",
		"Show a host", registry(own), daemon(Remembers))
	ReportHost = report[api.HostReport, api.Host]("/v1/hosts/{host}/report",
		"Take a daemon's report of its host")
	FenceHost = post[api.HostFence, api.Host]("/v1/hosts/{host}/fence",
		"Take an operator's word that a host cannot touch any volume any more", registry(never), daemon(PassesOn), needs(httpjson.Fence))
	ForgetHost = remove[api.Host]("/v1/hosts/{host}",
		"Forget a fenced host that is gone for good and has nothing left; with volumes=1 also the volumes in pools of its own",
		registry(never), daemon(PassesOn), needs(httpjson.Fence), query("volumes"))
	RejoinHost = report[api.HostRejoin, api.Host]("/v1/hosts/{host}/rejoin",
		"Let a fenced host back that has let go of what it lost")

	FetchTasks = get[[]api.Task]("/v1/hosts/{host}/tasks",
		"Fetch what a host is asked to do, by long poll; a new session gets all that has no answer yet",
		registry(own), needs(httpjson.Local), query("session", "wait_seconds"))
	AnswerTask = report[api.TaskAnswer, api.Task]("/v1/hosts/{host}/tasks/{task}/answer",
		"Take what a host's API answered to a task; the first answer counts")
)
