// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// cured adds to an error the commands, in their order, that an operator has to give before the
// call that failed is made again: none if they are not known. Each has been tried where it is
// printed (internal/treetest/testdata/needs_operator.txt).
func cured(err *api.Error, commands ...string) *api.Error {
	if len(commands) == 0 {
		return err
	}
	return err.With(api.DetailCure, strings.Join(commands, api.CureSeparator))
}

// Undefined is the error for an instance of a migration that has no definition on this host and
// does not run. Nobody but its owner has its definition.
func Undefined(s *Spec) *api.Error {
	define, repair := s.defineCommand(), s.repairCommand()
	return cured(api.Errorf(api.CodeNeedsOperator,
		"instance %s is not defined on this host any more: somebody has undefined it, or moved it to another one; its volume %s was %s (%s). "+
			"Define it again, with a copy of its definition as %s (`%s`), whatever image that names for disk %s, have the disk named right (`%s`), and call again; nothing was changed",
		s.InstanceName, s.VolumeName, s.Before(), s.Leftovers(), s.definitionFile(), define, s.Target, repair), define, repair)
}

func (s *Spec) repairCommand() string {
	return api.ShellLine("volferryctl", "instance", "repair", s.InstanceName)
}

// cancelCommand is the command that cancels the migration.
func (s *Spec) cancelCommand() string {
	return api.ShellLine("volferryctl", "migration", "cancel", s.MigrationID)
}

func (s *Spec) whichCommand() string {
	return api.ShellLine("volferryctl", "volume", "which", s.VolumeName)
}

// dumpCommand writes what libvirt shows of the instance to definitionFile, and defineCommand
// defines the instance by that.
func (s *Spec) dumpCommand() string {
	return api.ShellLine("virsh", "dumpxml", "--security-info", "--", s.InstanceName) + " > " + api.ShellLine(s.definitionFile())
}

func (s *Spec) defineCommand() string {
	return api.ShellLine("virsh", "define", "--", s.definitionFile())
}

func (s *Spec) definitionFile() string { return "./" + s.InstanceName + ".xml" }

// commitCommands commit what is over an image to that image under a guest, which runs or is paused.
// One that runs stands still meanwhile: some versions of QEMU miss what it writes as such a job
// begins (MustHold).
func commitCommands(s *Spec, base string, runs bool) []string {
	commit := api.ShellLine("virsh", "blockcommit", "--base", base, "--active", "--pivot", "--wait", "--", s.InstanceName, s.Target)
	if !runs {
		return []string{commit}
	}
	return []string{api.ShellLine("virsh", "suspend", "--", s.InstanceName), commit, api.ShellLine("virsh", "resume", "--", s.InstanceName)}
}

// quoted are commands as they stand in a message.
func quoted(commands []string) string { return "`" + strings.Join(commands, "`, `") + "`" }

// killCommand ends a process of the instance, and no other that has its number by the time at which
// it is typed.
func killCommand(s *Spec, pid int) string {
	is := api.ShellLine("grep", "-zxqF", "-e", s.InstanceID, fmt.Sprintf("/proc/%d/cmdline", pid)) // an argument of libvirt's
	return is + " && " + api.ShellLine("kill", strconv.Itoa(pid))
}

// convertCommand writes what is in one image to another that is there already, of the same size.
func convertCommand(fromFormat, toFormat, from, to string) string {
	return api.ShellLine("qemu-img", "convert", "-n", "-t", "writeback", "-f", fromFormat, "-O", toFormat, "--", from, to)
}

// startPoolCommand starts a pool of libvirt's.
func startPoolCommand(pool string) string {
	return api.ShellLine("virsh", "pool-start", "--", pool)
}

// endJobCommand ends the block job that somebody else has begun on the disk.
func endJobCommand(s *Spec) string {
	return api.ShellLine("virsh", "blockjob", "--abort", "--", s.InstanceName, s.Target)
}
