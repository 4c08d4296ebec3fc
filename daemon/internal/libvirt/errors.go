// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// kinds says what a libvirt error code means whatever the call was.
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

// sayings are what libvirt has no code for: it passes on what QEMU said, or
// gives up, with a code that says nothing or too much.
var sayings = []struct {
	text string
	kind error
}{
	{`Failed to get "write" lock`, hv.ErrInUse},
	{`Failed to get shared "write" lock`, hv.ErrInUse},
	{`Failed to get "consistent read" lock`, hv.ErrInUse},
	{`Failed to get shared "consistent read" lock`, hv.ErrInUse},
	// A bus of the machine on which nothing can be plugged: IDE, or PCI without
	// ACPI.
	{"does not support hotplugging", hv.ErrUnsupported},
	// A PCI Express machine has as many free ports as its definition says.
	{"No more available PCI slots", hv.ErrUnsupported},
	{"controller with index 0 required for device", hv.ErrUnsupported},
	{"Attempted double use of PCI", hv.ErrExists},
	{"domain has active block job", hv.ErrBusy},
	// A backup is a block job, too, and ends by itself or by virDomainAbortJob.
	{"already in active block job", hv.ErrBusy},
	// Somebody makes a volume there, which takes as long as its storage does. Until then the pool
	// answers nothing.
	{"has asynchronous jobs running", hv.ErrUnavailable},
	// The other end of QEMU's monitor is gone.
	{"Unable to read from monitor", hv.ErrProcessEnds},
	{"Unable to write to monitor", hv.ErrProcessEnds},
	{"End of file from qemu monitor", hv.ErrProcessEnds},
	{"unexpectedly closed the monitor", hv.ErrProcessEnds},
}

// kindOf goes by the text first: libvirt has one code for what it never does and for what it does
// not do now.
func kindOf(answer golibvirt.Error) error {
	for _, s := range sayings {
		if strings.Contains(answer.Message, s.text) {
			return s.kind
		}
	}
	return kinds[golibvirt.ErrorNumber(answer.Code)]
}

// classify wraps an error of a call in the hv error that it stands for, and
// keeps libvirt's own message. What libvirt did not say itself (EINVAL and
// ErrInterrupted of go-libvirt's socket, an answer that cannot be decoded)
// leaves the outcome unknown: ErrUnavailable.
func classify(err error) error {
	if err == nil {
		return nil
	}
	kind := hv.ErrUnavailable
	var answer golibvirt.Error // code and message are all that go-libvirt passes on
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

// hookWords is what the hook itself wrote, without the command line and the
// environment that libvirt puts before it.
func hookWords(message string) string {
	if _, words, found := strings.Cut(message, "unexpected exit status "); found {
		if _, words, found = strings.Cut(words, ": "); found && strings.TrimSpace(words) != "" {
			return strings.TrimSpace(words)
		}
	}
	return message
}

// said tells whether libvirt answered with this code.
func said(err error, code golibvirt.ErrorNumber) bool {
	var answer golibvirt.Error
	return errors.As(err, &answer) && golibvirt.ErrorNumber(answer.Code) == code
}

// saidText tells whether libvirt answered with this text in its message.
func saidText(err error, text string) bool {
	var answer golibvirt.Error
	return errors.As(err, &answer) && strings.Contains(answer.Message, text)
}
