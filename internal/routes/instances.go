// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/api"

// Routes of instances.
var (
	ListInstances = get[[]api.Instance]("/v1/instances",
		"List the instances", registry(own), daemon(Remembers), paged(instanceOrder))
	ShowInstance = get[api.Instance]("/v1/instances/{instance}",
		"Show an instance", registry(own), daemon(Remembers))
	AdoptInstance = post[api.InstanceAdopt, api.Instance]("/v1/instances:adopt",
		"Take over the disks of domains that exist", registry(never, "host"), daemon(Answers),
		also[[]api.Instance]("instances"), also[[]string]("already_adopted"))
	ForgetInstance = remove[api.Instance]("/v1/instances/{instance}",
		"Forget an instance; its domain and its volumes stay; with_definition=1 also one that no host has, force=1 also one whose disks are not where its volumes are",
		registry(own), daemon(Answers), query("with_definition", "force"))
	LockInstance = post[api.InstanceLock, api.Instance]("/v1/instances/{instance}/lock",
		"Keep everybody from changing an instance", registry(own), daemon(PassesOn))
	UnlockInstance = post[None, api.Instance]("/v1/instances/{instance}/unlock",
		"Let an instance be changed again", registry(own), daemon(PassesOn))
	StartInstance = post[None, api.Instance]("/v1/instances/{instance}/start",
		"Start an instance; the answer says which sources that its volumes have left may have what they lack",
		registry(never), daemon(Answers), begins, also[[]api.ReleasedSource]("written_sources"))
	StopInstance = post[api.InstanceStop, api.Instance]("/v1/instances/{instance}/stop",
		"Ask the guest to shut down, or with force cut its power", registry(never), daemon(Answers), begins)
	RebootInstance = post[None, api.Instance]("/v1/instances/{instance}/reboot",
		"Ask the guest to reboot", registry(never), daemon(Answers), begins)
	PauseInstance = post[None, api.Instance]("/v1/instances/{instance}/pause",
		"Pause an instance", registry(never), daemon(Answers), begins)
	UnpauseInstance = post[None, api.Instance]("/v1/instances/{instance}/unpause",
		"Let a paused instance run", registry(never), daemon(Answers), begins)
	RepairInstance = post[api.InstanceRepair, api.Instance]("/v1/instances/{instance}/repair",
		"Make the definition of an instance that is off name the images where its volumes are", registry(never), daemon(Answers), begins)
	ShelveInstance = post[api.InstanceShelve, api.Instance]("/v1/instances/{instance}/shelve",
		"Shelve an instance, with what its host knows of it", registry(never), daemon(Answers), begins)
	UnshelveInstance = post[api.InstanceUnshelve, api.Instance]("/v1/instances/{instance}/unshelve",
		"Bring a shelved instance back and start it", registry(never), daemon(Answers), begins)
)

// Routes for a host's report of its changes to an instance.
var (
	RegisterInstance = report[api.InstanceRegister, api.Instance]("/v1/instances:register",
		"Record an adopted instance with its disks")
	TransitionInstance = report[api.InstanceTransition, api.ShelvedInstance]("/v1/instances/{instance}/transition",
		"Move an instance between its host and the shelf",
		also[api.Instance]("instance"), also[[]api.Attachment]("attachments"), also[api.InstanceDefinition]("definition"))
)

// Routes for the registry to save the guests of a volume for a move with all guests paused. Only
// the migration that has locked the instance may use them.
var (
	ShowMemory = get[api.PausedInstance]("/v1/instances/{instance}/memory",
		"Show what it takes to save an instance", daemon(Answers))
	CheckSave = post[api.InstanceSuspend, api.PausedInstance]("/v1/instances/{instance}/check-save",
		"Check that an instance can be suspended and saved for the migration that has locked it; nothing is changed", daemon(Answers))
	SuspendInstance = post[api.InstanceSuspend, api.Instance]("/v1/instances/{instance}/suspend",
		"Suspend an instance, before all guests of its volume are saved", daemon(Answers), begins)
	SaveInstance = post[api.InstanceSave, api.Instance]("/v1/instances/{instance}/save",
		"Save an instance, RAM and all, for the migration that has locked it", daemon(Answers), begins)
	RestoreInstance = post[api.InstanceRestore, api.Instance]("/v1/instances/{instance}/restore",
		"Restore an instance that was saved for a migration; it stays suspended until it is resumed", daemon(Answers), begins)
	ResumeInstance = post[api.InstanceResume, api.Instance]("/v1/instances/{instance}/resume",
		"Let an instance run that was suspended for a migration", daemon(Answers), begins)
)
