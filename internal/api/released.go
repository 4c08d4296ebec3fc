// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"

	"github.com/volferry/volferry/internal/shell"
)

// MayHaveMore reports whether the source may have data that its volume lacks.
func (r *ReleasedSource) MayHaveMore() bool { return r.Written || r.RunBy != "" }

// Difference describes a source if MayHaveMore is true: both images, and why they differ.
func (r *ReleasedSource) Difference() string {
	left := fmt.Sprintf("%s, which volume %s has left by migration %s", r.Location.Path, r.VolumeName, r.MigrationID)
	if r.Unrecorded {
		left += " (the registry does not know it, and has the volume there still)"
	}
	if r.RunBy != "" {
		return fmt.Sprintf("the guest of instance %s runs on %s; what it writes there is not in the volume, which is at %s", r.RunBy, left, orUnknown(r.VolumePath))
	}
	return fmt.Sprintf("%s, was written since, by a guest that was started on it perhaps; the volume is at %s, and each of the two may have what the other lacks", left, orUnknown(r.VolumePath))
}

func orUnknown(path string) string {
	if path == "" {
		return "an unknown place"
	}
	return path
}

// WayOut returns, in lines, what an operator can do about a source if MayHaveMore is true.
func (r *ReleasedSource) WayOut() string {
	howTo := "docs/how-to/recover.md (A guest on another image than its volume)"
	if r.Unrecorded {
		howTo = "docs/how-to/lose-a-host.md (The registry is lost)"
	}
	if r.RunBy != "" {
		return fmt.Sprintf("shut that guest down before the two differ more (%s), and delete neither; %s says how the right one is kept", shell.Line("virsh", "shutdown", "--", r.RunBy), howTo)
	}
	if r.Unrecorded {
		return "delete neither, and start no guest on either: compare the two; " + howTo + " says how the volume is put where it belongs"
	}
	adopt := []string{"volferryctl", "volume", "adopt", r.VolumeName + "-old"}
	remove := shell.Line("rm", "--", r.Location.Path)
	switch {
	case r.Location.Pool != "":
		adopt = append(adopt, "--pool", r.Location.Pool, "--volume-name", r.Location.Name)
		remove = shell.Line("virsh", "vol-delete", "--pool", r.Location.Pool, "--", r.Location.Name)
	case strings.HasPrefix(r.Location.Path, "/dev/"):
		adopt = append(adopt, "--path", r.Location.Path)
		remove = "it is a device, which is removed where it was made"
	default:
		adopt = append(adopt, "--path", r.Location.Path)
	}
	return strings.Join([]string{
		"compare the two: " + howTo,
		"keep it, as a volume of its own: " + shell.Line(append(adopt, "--format", string(r.Location.Format), "--force")...),
		"or remove it, once it has nothing that the volume lacks: " + remove,
	}, "\n")
}

// ForgetRefusal returns the refusal to forget an instance with disks that are not at the locations
// of its volumes. The parameter what describes the differences.
func ForgetRefusal(name, what string) *Error {
	return Errorf(CodeChainChanged, "cannot forget instance %s: %s. Once it is forgotten nothing says that its guest is on another image: its volume, with all that was written there since a move, is free to be deleted or given to another instance, and an adoption takes the image that the guest is on now. "+
		"See first which image is the right one (`volferryctl volume which`). If it is the volume's, put its path back into the definition, with the guest off (`%s`; docs/how-to/recover.md, A guest on another image than its volume). "+
		"If it is the one that the definition names, since the registry was restored from a backup, docs/how-to/lose-a-host.md (The registry is lost) has the way, which begins with --force", name, what, shell.Line("volferryctl", "instance", "repair", name))
}
