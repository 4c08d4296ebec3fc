// SPDX-License-Identifier: Apache-2.0

package api

import (
	"regexp"
	"strings"
	"time"
)

// The checks of this file need only the request: a registry refuses a request as its hosts would,
// without calling them.

const (
	// SectorBytes is the sector size; the size of every disk is a multiple of it.
	SectorBytes = 512
	// MaxStopTimeout limits the timeout of a guest's shutdown.
	MaxStopTimeout = time.Hour
)

// The methods of a migration that pause all guests (MethodSave), or let all guests write
// (MethodLive).
const (
	MethodAuto    = "auto"
	MethodOverlay = "overlay"
	MethodMirror  = "mirror"
	MethodSave    = "save"
	MethodLive    = "live"
)

// LedByRegistry reports whether the registry leads the migration; otherwise one host makes it.
func (m *Migration) LedByRegistry() bool { return m.Method == MethodSave || m.Method == MethodLive }

var (
	// volumeNameRule leaves room for a suffix, since a name becomes the name of a file or device.
	volumeNameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)
	deviceRule     = regexp.MustCompile(`^(vd|sd)[a-z]{1,2}$`)
)

// CheckVolumeName validates the name of a volume.
func CheckVolumeName(name string) error {
	if !volumeNameRule.MatchString(name) {
		return invalid("name %.80q is not allowed: it must begin with a letter or digit, go on with letters, digits, dots, underscores and hyphens, and have at most 200 characters", name)
	}
	return nil
}

// CheckDevice validates the name of a device, which may be empty.
func CheckDevice(device string) error {
	if device == "" || deviceRule.MatchString(device) {
		return nil
	}
	return invalid("device %.20q is not allowed: say vda, vdb, ... for a virtio disk or sda, sdb, ... for a SCSI disk", device)
}

func checkFormat(what string, f Format) error {
	if f == "" || f.Valid() {
		return nil
	}
	return invalid("%s is %.20q; it must be raw or qcow2", what, string(f))
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Check validates the request.
func (in VolumeCreate) Check() error {
	if err := first(CheckVolumeName(in.Name), checkFormat("format", in.Format)); err != nil {
		return err
	}
	return checkSize(in.SizeBytes)
}

// Check validates the request.
func (in VolumeResize) Check() error { return checkSize(in.SizeBytes) }

// Check validates the request.
func (in VolumeSize) Check() error { return checkSize(in.SizeBytes) }

func checkSize(bytes int64) error {
	if bytes <= 0 || bytes%SectorBytes != 0 {
		return invalid("size_bytes is %d; it must be a positive multiple of %d", bytes, SectorBytes)
	}
	return nil
}

// Check validates the request.
func (in VolumeAdopt) Check() error {
	if err := CheckVolumeName(in.Name); err != nil {
		return err
	}
	switch {
	case (in.Path == "") == (in.Pool == ""):
		return invalid("say where the image is: exactly one of path and pool")
	case (in.Pool == "") != (in.VolumeName == ""):
		return invalid("volume_name is the image's name in a pool: pool and volume_name go together")
	case in.Format == "":
		return invalid("format is missing: say raw or qcow2, whichever the image is; looking at its bytes would not tell")
	}
	return checkFormat("format", in.Format)
}

// Check validates the request.
func (in MigrationTarget) Check() error {
	if (in.ToPool == "") == (in.ToPath == "") {
		return invalid("say where to: exactly one of to_pool and to_path")
	}
	if err := first(checkFormat("to_format", in.ToFormat), in.CopyOptions.Check()); err != nil {
		return err
	}
	if err := in.checkMethod(); err != nil {
		return err
	}
	if err := checkDeleteSource(in.DeleteSource, in.Verify); err != nil {
		return err
	}
	if err := first(in.checkKeepBase(), in.checkCheckpoints(), in.checkAllocation()); err != nil {
		return err
	}
	if in.PauseAll && in.ExternalCopy {
		return invalid("a move with all guests paused has no external copy: the guests would stand still until somebody has made it")
	}
	if in.Method == MethodLive && in.ExternalCopy {
		return invalid("a move while all guests write has no external copy: nobody else knows what they write")
	}
	return in.checkMaxPause()
}

func (in MigrationTarget) checkAllocation() error {
	switch in.Allocation {
	case "":
		return nil
	case AllocationKeep, AllocationThin, AllocationThick:
	default:
		return invalid("allocation is %.20q; it must be keep, thin or thick", in.Allocation)
	}
	switch {
	case in.Method == MethodLive:
		return invalid("a move while all guests write makes a sparse file: leave allocation out")
	case in.PauseAll:
		return invalid("a move with all guests paused keeps the allocation of the source: leave allocation out")
	case in.ExternalCopy:
		return invalid("what an external copy takes is up to the tool that makes it: leave allocation out")
	case in.KeepBase && in.Allocation == AllocationThick:
		return invalid("a linked clone gets room as it is written to: leave out keep_base or allocation thick")
	}
	return nil
}

func (in MigrationTarget) checkKeepBase() error {
	switch {
	case !in.KeepBase:
	case in.PauseAll, in.Method == MethodLive:
		return invalid("a move that the registry leads keeps no base images: leave out keep_base")
	case in.Method == MethodMirror:
		return invalid("a mirror copies the whole disk, and keeps no base images: leave out method mirror or keep_base")
	case in.ExternalCopy:
		return invalid("keep_base has no external copy: another tool would copy what is in the base images as well")
	case in.ToFormat != "" && in.ToFormat != FormatQcow2:
		return invalid("keep_base makes a qcow2 image: leave out to_format")
	}
	return nil
}

func (in MigrationTarget) checkCheckpoints() error {
	switch {
	case in.Checkpoints == "":
	case in.Checkpoints != CheckpointsDrop:
		return invalid("checkpoints is %.20q; it must be %s", in.Checkpoints, CheckpointsDrop)
	case in.PauseAll, in.Method == MethodLive:
		return invalid("a move that the registry leads drops no dirty bitmaps: leave out checkpoints, and remove them with qemu-img bitmap --remove while no guest runs")
	}
	return nil
}

func checkDeleteSource(deleteSource bool, verify string) error {
	if deleteSource && verify == VerifyNone {
		return invalid("delete_source needs verify full: a source is deleted only after its copy was read back")
	}
	return nil
}

// MaxLivePause limits the allowed pause in a move while all guests write.
const MaxLivePause = time.Hour

func (in MigrationTarget) checkMaxPause() error {
	switch {
	case in.ThrottleWriters && in.Method != MethodLive:
		return invalid("throttle_writers goes with method %s only", MethodLive)
	case in.MaxPauseSeconds != 0 && in.Method != MethodLive:
		return invalid("max_pause_seconds goes with method %s only", MethodLive)
	case in.MaxPauseSeconds < 0 || in.MaxPauseSeconds > int64(MaxLivePause/time.Second):
		return invalid("max_pause_seconds is %d; it must be between 1 and %d", in.MaxPauseSeconds, int64(MaxLivePause/time.Second))
	}
	return nil
}

func (in MigrationTarget) checkMethod() error {
	switch in.Method {
	case "", MethodAuto:
	case MethodSave:
		if !in.PauseAll {
			return invalid("method save saves all guests: say pause_all")
		}
	case MethodOverlay, MethodMirror, MethodLive:
		if in.PauseAll {
			return invalid("a move with all guests paused has no method %s: its method is %s", in.Method, MethodSave)
		}
	default:
		return invalid("method is %.20q; it must be auto, overlay, mirror or live", in.Method)
	}
	return nil
}

// Check validates the request.
func (in MigrationComplete) Check() error {
	if in.DstAttachmentID == "" {
		return invalid("dst_attachment_id is missing; `volferryctl migration show` has it")
	}
	return nil
}

// Check validates the request.
func (in VolumeAttach) Check() error {
	return first(checkMode(in.Mode), checkGiven("instance", in.Instance), CheckDevice(in.Device))
}

func checkMode(m Mode) error {
	if m != "" && !m.Valid() {
		return invalid("mode is %.20q; it must be rw or ro", string(m))
	}
	return nil
}

// Check validates the request.
func (in VolumeDetach) Check() error { return checkGiven("instance", in.Instance) }

// Check validates the request.
func (in VolumeRetype) Check() error {
	switch in.MigrationPolicy {
	case "", RetypeNever, RetypeOnDemand:
	default:
		return invalid("migration_policy is %.20q; it must be never or on-demand", in.MigrationPolicy)
	}
	bare := VolumeRetype{Type: in.Type, MigrationPolicy: in.MigrationPolicy}
	switch {
	case in.MigrationPolicy != RetypeOnDemand && in != bare:
		return invalid("to_pool, to_path, to_format, method, verify, overwrite, bandwidth_bytes_per_second, delete_source, pace and checkpoints are of a move, which needs migration_policy on-demand")
	case in.ToPool != "" && in.ToPath != "":
		return invalid("say where to by one of to_pool and to_path, or by none: the type decides then")
	case in.Overwrite && in.ToPath == "":
		return invalid("overwrite goes with to_path only")
	}
	switch in.Method {
	case "", MethodAuto, MethodOverlay, MethodMirror:
	default:
		return invalid("method is %.20q; it must be auto, overlay or mirror", in.Method)
	}
	return first(checkGiven("type", in.Type), checkFormat("to_format", in.ToFormat), in.CopyOptions().Check(), checkDeleteSource(in.DeleteSource, in.Verify), MigrationTarget{Checkpoints: in.Checkpoints}.checkCheckpoints())
}

// Check validates the request.
func (in InstanceStop) Check() error { return checkStopTimeout(in.TimeoutSeconds) }

// Check validates the request.
func (in InstanceShelve) Check() error { return checkStopTimeout(in.TimeoutSeconds) }

func checkStopTimeout(seconds int) error {
	if most := int(MaxStopTimeout.Seconds()); seconds < 0 || seconds > most {
		return invalid("timeout_seconds is %d; it must be from 0 (the default) to %d", seconds, most)
	}
	return nil
}

func checkGiven(what, text string) error {
	if strings.TrimSpace(text) == "" {
		return invalid("%s is missing", what)
	}
	return nil
}
