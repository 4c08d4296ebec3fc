// SPDX-License-Identifier: Apache-2.0

// Package boot is what the host of a virtual machine and the machine's first program say to
// each other.
package boot

// Plan is what the first program does. It is in the machine's first file system.
type Plan struct {
	Shares  []Share
	Command []string
	Env     []string
	Dir     string
	// Systemd: the command runs in a unit of systemd, which is the machine's process 1.
	Systemd bool
}

// PlanFile is where the plan is.
const PlanFile = "/plan.json"

// ModulesDir is where the modules are that the first program loads.
const ModulesDir = "/modules"

// RootTag is the tag of the root.
const RootTag = "root"

// Share is a directory of the host.
type Share struct {
	// Tag is its name on the way between the two.
	Tag string
	// Path is where the machine sees it.
	Path string
	// Writable: what the machine writes there is on the host.
	Writable bool
}

// ExitPort is the virtio-serial port to which the exit status of the command is written, in
// decimal digits.
const ExitPort = "exit"
