// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// NotAvailable returns the refusal of a request that needs the volume in another status.
func NotAvailable(v api.Volume, verb string) error {
	err := api.Errorf(api.CodeVolumeNotAvailable, "cannot %s volume %s: it is %s", verb, v.Name, v.Status).With("status", v.Status)
	if v.ResizeOpID != "" {
		err = err.With("op_id", v.ResizeOpID)
	}
	return err
}

// MigrationActive returns the refusal of a request that is not possible during a migration of the
// volume.
func MigrationActive(v api.Volume, verb string) error {
	return refuseMoving(verb, v.Name, v.MigrationID)
}

func refuseMoving(verb, volume, migration string) error {
	return api.Errorf(api.CodeMigrationActive, "cannot %s volume %s: migration %s is moving it; complete or cancel that first", verb, volume, migration).
		With("migration_id", migration)
}

func staleGeneration(verb, volume string, is, asked int64) error {
	return api.Errorf(api.CodeStaleGeneration, "cannot %s volume %s: it is in generation %d and the request is of generation %d; it was moved meanwhile", verb, volume, is, asked).
		With("generation", is)
}

func multiattached(volume string, attachments int) error {
	return api.Errorf(api.CodeMultiattached, "cannot migrate volume %s: it has %d attachments; detach all but one, or move it with --live-shared, while its guests write, or with --pause-all, which saves and restores them", volume, attachments).With("attachments", attachments)
}

// shelvedOnHost returns the refusal to move a volume of an instance that is shelved and still on
// its host, or is being unshelved.
func shelvedOnHost(volume, instance string) error {
	return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: its instance %s is shelved and still on its host; unshelve it, or take it off with `%s`", volume, instance, shell.Line("volferryctl", "instance", "shelve", instance)).
		With("state", api.InstanceShelved)
}

func alreadyAttached(volume, instance, attachment string) error {
	return api.Errorf(api.CodeConflict, "volume %s is at instance %s already, by attachment %s", volume, instance, attachment).With("attachment_id", attachment)
}

func usedByInstance(volume, instance, instanceID, attachment string) error {
	return api.Errorf(api.CodeVolumeInUse, "cannot attach volume %s: it is at instance %s, and its type is not multiattach", volume, instance).
		With("instance_id", instanceID).With("attachment_id", attachment)
}

func stopAdvice(instance string, state api.InstanceState) string {
	switch state {
	case api.InstanceRunning, api.InstancePaused, api.InstanceAsleep, api.InstanceCrashed:
		return "stop it first"
	case api.InstanceShelved:
		return "it is shelved and still on its host; take it off with `" + shell.Line("volferryctl", "instance", "shelve", instance) + "`, or unshelve and stop it"
	case api.InstanceError:
		return "`" + shell.Line("volferryctl", "instance", "show", instance) + "` says what its host found; mend that first"
	case api.InstanceStopped, api.InstanceShelvedOffloaded:
	}
	return "it has to be stopped or shelved_offloaded"
}

// instanceLock is an instance's lock: its reason, "" for none, and the migration that holds it, ""
// for an operator.
type instanceLock struct{ reason, op string }

func lockOf(i api.Instance) instanceLock { return instanceLock{i.LockReason, i.LockedBy} }

func (l instanceLock) check(verb, instance string) error {
	switch {
	case l.reason == "":
		return nil
	case l.op != "":
		return api.Errorf(api.CodeInstanceLocked, "cannot %s instance %s: migration %s holds it (%s) and lets it go at its end", verb, instance, l.op, l.reason).
			With("migration_id", l.op)
	}
	return api.Errorf(api.CodeInstanceLocked, "cannot %s instance %s: it is locked (%s); `%s`, if that may be", verb, instance, l.reason, shell.Line("volferryctl", "instance", "unlock", instance))
}

// CheckUnlocked refuses a change of a locked instance.
func CheckUnlocked(verb string, i api.Instance) error { return lockOf(i).check(verb, i.Name) }
