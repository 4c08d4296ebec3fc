// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes for the registry to move a volume while all its guests write.
var (
	CheckLive = post[api.LiveCheck, api.LiveHost]("/v1/migrations/{migration}/check-live",
		"Check that a volume can be moved while its guests on this host write; nothing is changed", daemon(Answers))
	MakeLive = post[api.LiveMake, api.Op]("/v1/migrations/{migration}/make-live",
		"Make the destination of a volume that is moved while its guests write", daemon(Answers))
	TrackLive = post[api.LiveTrack, api.Op]("/v1/migrations/{migration}/track",
		"Begin to follow what the guests of this host write to a volume", daemon(Answers))
	SwapLive = post[api.LiveSwap, api.Op]("/v1/migrations/{migration}/swap",
		"Follow what the guests of this host write for the next round", daemon(Answers))
	CopyRound = post[api.LiveRound, api.Op]("/v1/migrations/{migration}/copy-round",
		"Copy what the guests of this host wrote until the last swap, or in round 0 a share of the volume", daemon(Answers))
	EndRound = post[api.LiveEndRound, api.Op]("/v1/migrations/{migration}/end-round",
		"End what this host copies for a generation", daemon(Answers))
	LastRead = post[api.LiveLastRead, api.Op]("/v1/migrations/{migration}/last-read",
		"Keep what the guests of this host wrote since the last swap, now that they stand still", daemon(Answers))
	LastCopy = post[api.LiveLastCopy, api.Op]("/v1/migrations/{migration}/last-copy",
		"Copy what the guests of this host wrote last", daemon(Answers))
	UntrackLive = post[api.LiveUntrack, api.Op]("/v1/migrations/{migration}/untrack",
		"End following what the guests of this host write, and leave nothing behind", daemon(Answers))
)
