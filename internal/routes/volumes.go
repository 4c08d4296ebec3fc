// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes of volumes.
var (
	ListVolumes = get[[]api.Volume]("/v1/volumes",
		"List the volumes", registry(own), daemon(Remembers), paged(volumeOrder))
	ShowVolume = get[api.Volume]("/v1/volumes/{volume}",
		"Show a volume", registry(own), daemon(Remembers))
	CreateVolume = post[api.VolumeCreate, api.Volume]("/v1/volumes",
		"Create a volume", registry(never, "host"), daemon(Answers))
	AdoptVolume = post[api.VolumeAdopt, api.Volume]("/v1/volumes:adopt",
		"Register an image that exists as a volume", registry(never, "host"), daemon(Answers))
	UpdateVolume = patch[api.VolumeUpdate, api.Volume]("/v1/volumes/{volume}",
		"Rename a volume or make it bootable", registry(own), daemon(PassesOn))
	DeleteVolume = remove[api.VolumeRegister]("/v1/volumes/{volume}",
		"Delete a volume and its bytes; with force=1 also one whose bytes may be half there",
		registry(never), daemon(Answers), query("force"))
	ForgetVolume = post[api.VolumeForget, api.Volume]("/v1/volumes/{volume}/forget",
		"Forget a volume that is not attached; its bytes are left as they are", registry(own), daemon(Answers))
	ResizeVolume = post[api.VolumeResize, api.Volume]("/v1/volumes/{volume}/resize",
		"Make a volume larger, also under a running guest", registry(never), daemon(Answers))
	SetVolumeSize = post[api.VolumeSize, api.Volume]("/v1/volumes/{volume}/size",
		"Set the size of a volume to the one that its image has by the report of a host that reaches it, also a smaller one; the image is not changed",
		registry(never), daemon(PassesOn))
	ShowVolumeImage = get[api.VolumeImage]("/v1/volumes/{volume}/image",
		"Show the size that the image of a volume has on this host", daemon(Answers))
	RetypeVolume = post[api.VolumeRetype, api.Volume]("/v1/volumes/{volume}/retype",
		"Give a volume another type, and move it if it must be moved and that is asked for", registry(never), daemon(PassesOn))
	PlanRetype = post[api.VolumeRetype, api.RetypePlan]("/v1/volumes/{volume}/retype:plan",
		"Show what a retype would do, or why it is refused; nothing is done", registry(never), daemon(PassesOn))
	AttachVolume = post[api.VolumeAttach, api.Attachment]("/v1/volumes/{volume}/attach",
		"Attach a volume to an instance; the registry does it at once, without an op, where no host has the instance",
		registry(own), daemon(Answers), begins)
	DetachVolume = post[api.VolumeDetach, api.Attachment]("/v1/volumes/{volume}/detach",
		"Detach a volume from an instance; the registry does it at once, without an op, where no host has the instance",
		registry(own), daemon(Answers), begins)
	MigrateVolume = post[api.MigrationTarget, api.Migration]("/v1/volumes/{volume}/migrate",
		"Move a volume: start, copy and complete in one; with pause_all the registry leads the move and answers without an op, also to a host that has all its guests",
		registry(own), daemon(Answers, waitParameter), begins)
	PlanMigration = post[api.MigrationTarget, api.MigrationPlan]("/v1/volumes/{volume}/migrate:plan",
		"Show what a move would do, or why it is refused; nothing is done", registry(never), daemon(Answers))
	EstimateMigration = post[api.MigrationTarget, api.PauseEstimate]("/v1/volumes/{volume}/migrate:estimate",
		"Estimate the cost of a move with all guests paused; nothing is done", registry(own), daemon(PassesOn))
	ShowWhich = get[api.Which]("/v1/volumes/{volume}/which",
		"Show which copy of a volume is the good one; where its host is fenced, what the registry knows by itself",
		registry(never), daemon(Answers))
)

// Routes for a host's report of its changes to a volume.
var (
	RegisterVolume = report[api.VolumeRegister, api.Volume]("/v1/volumes:register",
		"Record a volume that a host creates or has found")
	TransitionVolume = report[api.VolumeTransition, api.Volume]("/v1/volumes/{volume}/transition",
		"Move a volume from one status to another")
	GrowVolume = report[api.VolumeGrow, api.Volume]("/v1/volumes/{volume}/grow",
		"Record that the image of a volume has grown")
	IdentifyVolume = report[api.VolumeIdentify, api.Volume]("/v1/volumes/{volume}/identify",
		"Record what the device of a volume says of itself")
	BeginResize = report[api.VolumeResizeBegin, api.Volume]("/v1/volumes/{volume}/resize:begin",
		"Keep others from a volume while its host makes it larger")
	EndResize = report[api.VolumeResizeEnd, api.Volume]("/v1/volumes/{volume}/resize:end",
		"Record the size of a volume that was made larger, and let others at it again")
)
