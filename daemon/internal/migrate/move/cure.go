// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Cured adds to an error the commands, in order, that an operator has to run before repeating the
// call. Each has been tried where it is printed (internal/treetest/testdata/needs_operator.txt).
func Cured(err *api.Error, commands ...string) *api.Error {
	if len(commands) == 0 {
		return err
	}
	return err.With(api.DetailCure, strings.Join(commands, api.CureSeparator))
}

// Undefined returns the error for an instance that is neither defined nor running on this host.
// Only its owner has a copy of its definition.
func Undefined(s *Spec) *api.Error {
	define, repair := s.DefineCommand(), s.RepairCommand()
	return Cured(api.Errorf(api.CodeNeedsOperator,
		"instance %s is not defined on this host any more: somebody has undefined it, or moved it to another one; its volume %s was %s (%s). "+
			"Define it again, with a copy of its definition as %s (`%s`), whatever image that names for disk %s, have the disk named right (`%s`), and call again; nothing was changed",
		s.InstanceName, s.VolumeName, s.Before(), s.Leftovers(), s.DefinitionFile(), define, s.Target, repair), define, repair)
}

// RepairCommand returns the command that makes the definition name the image of the volume.
func (s *Spec) RepairCommand() string {
	return shell.Line("volferryctl", "instance", "repair", s.InstanceName)
}

// CancelCommand returns the command that cancels the migration.
func (s *Spec) CancelCommand() string {
	return shell.Line("volferryctl", "migration", "cancel", s.MigrationID)
}

// WhichCommand returns the command that shows which image has the data of the volume.
func (s *Spec) WhichCommand() string {
	return shell.Line("volferryctl", "volume", "which", s.VolumeName)
}

// DumpCommand returns the command that writes libvirt's definition of the instance to
// DefinitionFile.
func (s *Spec) DumpCommand() string {
	return shell.Line("virsh", "dumpxml", "--security-info", "--", s.InstanceName) + " > " + shell.Line(s.DefinitionFile())
}

// DefineCommand returns the command that defines the instance from DefinitionFile.
func (s *Spec) DefineCommand() string {
	return shell.Line("virsh", "define", "--", s.DefinitionFile())
}

// DefinitionFile returns the file of DumpCommand, in the working directory.
func (s *Spec) DefinitionFile() string { return "./" + s.InstanceName + ".xml" }

// CommitCommands returns the commands that commit all images over base into base while the guest
// is active. They suspend a running guest: some versions of QEMU miss writes when such a block job
// begins. libvirt may refuse to resume a guest that pivots while it is suspended (shell.Unpause).
func CommitCommands(s *Spec, base string, runs bool) []string {
	commit := shell.Line("virsh", "blockcommit", "--base", base, "--active", "--pivot", "--wait", "--", s.InstanceName, s.Target)
	if !runs {
		return []string{commit}
	}
	return []string{shell.Line("virsh", "suspend", "--", s.InstanceName), commit, shell.Unpause(s.InstanceName)}
}

// Quoted formats the commands for a message.
func Quoted(commands []string) string { return "`" + strings.Join(commands, "`, `") + "`" }

// KillCommand returns a command that ends a process of the instance, unless another process has
// its number by then.
func KillCommand(s *Spec, pid int) string {
	is := shell.Line("grep", "-zxqF", "-e", s.InstanceID, fmt.Sprintf("/proc/%d/cmdline", pid)) // an argument that libvirt passes
	return is + " && " + shell.Line("kill", strconv.Itoa(pid))
}

// ConvertCommand returns the command that writes an image's content to an existing image of the
// same size.
func ConvertCommand(fromFormat, toFormat, from, to string) string {
	return shell.Line("qemu-img", "convert", "-n", "-t", "writeback", "-f", fromFormat, "-O", toFormat, "--", from, to)
}

// StartPoolCommand returns the command that starts a pool.
func StartPoolCommand(pool string) string {
	return shell.Line("virsh", "pool-start", "--", pool)
}

// EndJobCommand returns the command that aborts the block job on the disk.
func EndJobCommand(s *Spec) string {
	return shell.Line("virsh", "blockjob", "--abort", "--", s.InstanceName, s.Target)
}
