// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// OpenFile is one open file descriptor of a domain's process on an image, or one open block node
// for an image of type network.
type OpenFile struct {
	// Path is the image's path as the caller wrote it.
	Path string
	PID  int // of the process
	FD   int // 0 for an image of type network
	// Node is QEMU's name for an image of type network; empty if QEMU could not be queried.
	Node     string
	Writable bool
}

// Unasked reports whether QEMU could not be queried for the image.
func (f *OpenFile) Unasked() bool { return f.Node == "" && f.FD == 0 }

// Name identifies the descriptor or node within its process.
func (f *OpenFile) Name() string {
	switch {
	case f.Node != "":
		return "block node " + f.Node
	case f.Unasked():
		return "by a process that libvirt does not have"
	}
	return "fd " + strconv.Itoa(f.FD)
}

// Rule is a rule that denies access to a process.
type Rule struct {
	// File has the rule. Path is the image in the rule, with links resolved.
	File, Path string
}

// Confinement is how the kernel confines a process.
type Confinement struct {
	// Profile is the AppArmor profile that the kernel enforces on the process, or "".
	Profile string
	// Context is the process's SELinux context, or "". It also exists for a process that SELinux
	// confines little.
	Context string
}

// Module returns the security module that confines the process as a guest, or "".
func (c Confinement) Module() string {
	if c.Profile != "" {
		return "AppArmor"
	}
	if fields := strings.SplitN(c.Context, ":", 4); len(fields) == 4 && strings.HasPrefix(fields[2], "svirt") {
		return "SELinux"
	}
	return ""
}

// Process identifies the process of an active domain among all processes that ran on this host.
type Process struct {
	ID     string
	Images []string
	// Kept: the process was started with the present top image of the live disk in question, and
	// has had it open in this disk ever since.
	Kept bool
}

// ProcessUser is a user and its main group by number.
type ProcessUser struct {
	UID uint32
	GID uint32
	// Given: libvirt makes this user the owner of an image before a guest opens it, if the
	// filesystem permits that to root.
	Given bool
}

// Processes looks at the process of a domain in the kernel. Every method except QEMUUser returns
// ErrNotActive if the domain is off.
type Processes interface {
	// OpenFiles lists the open files of the domain's process on the images at these paths, in one
	// pass. Files and devices are compared by device and inode (or device number) as /proc shows
	// them; images of type network come from QEMU. The hypervisor's own records are ignored. An
	// absent path is an error (fs.ErrNotExist); an absent address is not. It returns ErrNoProcess,
	// not an empty list, if an active domain's process cannot be found. If the hypervisor does not
	// know a running process of the domain, QEMU cannot be queried, and each address counts as
	// open for writing.
	OpenFiles(ctx context.Context, id string, paths ...string) ([]OpenFile, error)
	// Process returns the process of an active domain and the images in its start arguments, from
	// /proc. It returns ErrNoProcess if it finds no process or several.
	Process(ctx context.Context, id, target string) (Process, error)
	// QEMUVersion returns the QEMU version of an active domain's process, zero if unknown. It may
	// differ from About's: a process keeps the program that started it.
	QEMUVersion(ctx context.Context, id string) (Version, error)
	// WriteDeniedBy returns the rule that denies the process of an active domain to write to the
	// image at path, even if another rule allows it, or nil. No job can write there. It returns
	// ErrNoProcess as OpenFiles does.
	WriteDeniedBy(ctx context.Context, id, path string) (*Rule, error)
	// Confinement returns how the kernel confines the process of an active domain. It returns
	// ErrNoProcess as OpenFiles does.
	Confinement(ctx context.Context, id string) (Confinement, error)
	// DeniesBelow reports whether the hypervisor makes such rules for the images below the overlays
	// of an active domain when a block job of the domain ends, or when a disk leaves it. It returns
	// ErrNoProcess as OpenFiles does.
	DeniesBelow(ctx context.Context, id string) (bool, error)
	// QEMUUser returns the user of a domain's process, present or future. An empty id means a
	// domain that names no user. It returns ErrUnsupported if QEMU has no user of its own.
	QEMUUser(ctx context.Context, id string) (ProcessUser, error)
}

// QEMUUsers is the part of Processes that ConfinedUser calls.
type QEMUUsers interface {
	QEMUUser(ctx context.Context, id string) (ProcessUser, error)
}

// ConfinedUser returns the user of a domain's process. confined is false if the process runs as
// libvirt's own user.
func ConfinedUser(ctx context.Context, h QEMUUsers, id string) (user ProcessUser, confined bool, err error) {
	user, err = h.QEMUUser(ctx, id)
	if errors.Is(err, ErrUnsupported) {
		return user, false, nil
	}
	return user, err == nil, err
}
