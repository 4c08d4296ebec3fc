// SPDX-License-Identifier: Apache-2.0

package api

// Values returns the formats.
func (Format) Values() []string { return words(FormatRaw, FormatQcow2) }

// Values returns the states of an instance.
func (InstanceState) Values() []string {
	return words(InstanceRunning, InstancePaused, InstanceAsleep, InstanceCrashed, InstanceStopped, InstanceShelved, InstanceShelvedOffloaded, InstanceError)
}

// Values returns the statuses of a volume.
func (VolumeStatus) Values() []string {
	return words(VolumeCreating, VolumeAvailable, VolumeReserved, VolumeInUse, VolumeDeleting, VolumeError, VolumeResizing)
}

// Values returns the states of an attachment.
func (AttachmentState) Values() []string {
	return words(AttachmentReserved, AttachmentAttaching, AttachmentAttached, AttachmentDetaching, AttachmentError)
}

// Values returns the states of a migration.
func (MigrationState) Values() []string {
	return words(MigrationStarting, MigrationStarted, MigrationCopying, MigrationCopied, MigrationCompleting, MigrationCompleted,
		MigrationCancelling, MigrationCancelled, MigrationError, MigrationNeedsOperator, MigrationOrphaned)
}

func words[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// Values returns the modes of an attachment.
func (Mode) Values() []string { return words(ModeRW, ModeRO) }
