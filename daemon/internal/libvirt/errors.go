// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// kinds maps the libvirt error codes that have one meaning in all calls.
var kinds = map[golibvirt.ErrorNumber]error{
	golibvirt.ErrNoDomain:             hv.ErrNotFound,
	golibvirt.ErrNoStoragePool:        hv.ErrNotFound,
	golibvirt.ErrNoStorageVol:         hv.ErrNotFound,
	golibvirt.ErrStorageVolExist:      hv.ErrExists,
	golibvirt.ErrBlockCopyActive:      hv.ErrBusy,
	golibvirt.ErrOperationTimeout:     hv.ErrBusy, // another job holds the domain
	golibvirt.ErrResourceBusy:         hv.ErrBusy,
	golibvirt.ErrHookScriptFailed:     hv.ErrGuarded,
	golibvirt.ErrNoSupport:            hv.ErrUnsupported,
	golibvirt.ErrConfigUnsupported:    hv.ErrUnsupported,
	golibvirt.ErrOperationUnsupported: hv.ErrUnsupported,
	golibvirt.ErrArgumentUnsupported:  hv.ErrUnsupported,
	golibvirt.ErrRPC:                  hv.ErrUnavailable,
	golibvirt.ErrNoConnect:            hv.ErrUnavailable,
	golibvirt.ErrInvalidConn:          hv.ErrUnavailable,
}

// sayings are texts of messages without a specific code: libvirt passes on QEMU's message, or
// fails with a generic or misleading code.
var sayings = []struct {
	text string
	kind error
}{
	{`Failed to get "write" lock`, hv.ErrInUse},
	{`Failed to get shared "write" lock`, hv.ErrInUse},
	{`Failed to get "consistent read" lock`, hv.ErrInUse},
	{`Failed to get shared "consistent read" lock`, hv.ErrInUse},
	// A bus of the machine without hot plug: IDE, or PCI without ACPI.
	{"does not support hotplugging", hv.ErrUnsupported},
	// A PCI Express machine has as many free ports as its definition provides.
	{"No more available PCI slots", hv.ErrUnsupported},
	{"controller with index 0 required for device", hv.ErrUnsupported},
	{"Attempted double use of PCI", hv.ErrExists},
	{"domain has active block job", hv.ErrBusy},
	// A backup is a block job too. It ends by itself or by virDomainAbortJob.
	{"already in active block job", hv.ErrBusy},
	// Another client creates a volume in the pool, which may take long. Until then the pool
	// answers nothing.
	{"has asynchronous jobs running", hv.ErrUnavailable},
	// The other end of QEMU's monitor is gone.
	{"Unable to read from monitor", hv.ErrProcessEnds},
	{"Unable to write to monitor", hv.ErrProcessEnds},
	{"End of file from qemu monitor", hv.ErrProcessEnds},
	{"unexpectedly closed the monitor", hv.ErrProcessEnds},
}

// kindOf returns the hv error for an answer, or nil. It checks the text first: libvirt has one
// code for both permanent and temporary refusals.
func kindOf(answer golibvirt.Error) error {
	for _, s := range sayings {
		if strings.Contains(answer.Message, s.text) {
			return s.kind
		}
	}
	return kinds[golibvirt.ErrorNumber(answer.Code)]
}

// classify wraps the error of a call in its hv error, and keeps libvirt's message. Any other error
// (EINVAL and ErrInterrupted of go-libvirt's socket, an answer that cannot be decoded) leaves the
// outcome unknown: ErrUnavailable.
func classify(err error) error {
	if err == nil {
		return nil
	}
	kind := hv.ErrUnavailable
	var answer golibvirt.Error
	switch {
	case errors.As(err, &answer):
		kind = kindOf(answer)
	case errors.Is(err, golibvirt.ErrUnsupported):
		kind = hv.ErrUnsupported
	}
	if kind == nil {
		return err
	}
	if errors.Is(kind, hv.ErrGuarded) {
		return fmt.Errorf("%w: %s", kind, hookWords(answer.Message))
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// hookWords returns the hook's message, without the command line and environment that libvirt puts
// before it.
func hookWords(message string) string {
	if _, words, found := strings.Cut(message, "unexpected exit status "); found {
		if _, words, found = strings.Cut(words, ": "); found && strings.TrimSpace(words) != "" {
			return strings.TrimSpace(words)
		}
	}
	return message
}

func said(err error, code golibvirt.ErrorNumber) bool {
	var answer golibvirt.Error
	return errors.As(err, &answer) && golibvirt.ErrorNumber(answer.Code) == code
}

func saidText(err error, text string) bool {
	var answer golibvirt.Error
	return errors.As(err, &answer) && strings.Contains(answer.Message, text)
}
