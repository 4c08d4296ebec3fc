// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes of pools and drains.
var (
	ListPools = get[[]api.Pool]("/v1/pools",
		"List the storage pools of every host", registry(own), daemon(Remembers), paged(poolOrder))
	ShowPool = get[api.Pool]("/v1/pools/{pool}",
		"Show a storage pool; host says whose, where several hosts have one of that name",
		registry(own), daemon(Remembers), query("host"))
	DrainPool = post[api.PoolDrain, api.Drain]("/v1/pools/{pool}/drain",
		"Move every volume of a pool, on every host, to another pool", registry(never), daemon(PassesOn))

	ListDrains = get[[]api.Drain]("/v1/drains",
		"List the drains, newest first", registry(never), daemon(PassesOn), paged(drainOrder))
	ShowDrain = get[api.Drain]("/v1/drains/{drain}",
		"Show a drain with its volumes", registry(never), daemon(PassesOn))
	FollowDrain = stream("/v1/drains/{drain}/events",
		"Follow a drain", registry(never), daemon(PassesOn))
	PauseDrain = post[None, api.Drain]("/v1/drains/{drain}/pause",
		"Begin no more moves of a drain; those that run go on", registry(never), daemon(PassesOn))
	ResumeDrain = post[None, api.Drain]("/v1/drains/{drain}/resume",
		"Let a paused drain go on", registry(never), daemon(PassesOn))
	StopDrain = post[None, api.Drain]("/v1/drains/{drain}/stop",
		"End a drain; the moves that run go on", registry(never), daemon(PassesOn))
)
