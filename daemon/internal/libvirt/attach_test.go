// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestWhatQEMUSaysIsUnderstood(t *testing.T) {
	const qemu = "internal error: unable to execute QEMU command 'device_add': "
	for text, want := range map[string]error{
		qemu + `Failed to get "write" lock`:                                               hv.ErrInUse,
		qemu + `Failed to get shared "write" lock`:                                        hv.ErrInUse,
		qemu + "Bus 'pci.0' does not support hotplugging":                                 hv.ErrUnsupported,
		"internal error: No more available PCI slots":                                     hv.ErrUnsupported,
		"internal error: Could not find sata controller with index 0 required for device": hv.ErrUnsupported,
		"XML error: Attempted double use of PCI Address 0000:00:04.0":                     hv.ErrExists,
		"internal error: pool 'b' has asynchronous jobs running.":                         hv.ErrUnavailable,
		"Unable to read from monitor: Connection reset by peer":                           hv.ErrProcessEnds,
		"internal error: End of file from qemu monitor":                                   hv.ErrProcessEnds,
	} {
		err := classify(golibvirt.Error{Code: uint32(golibvirt.ErrInternalError), Message: text})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func TestTheHooksOwnWordsAreHanded(t *testing.T) {
	const message = "Hook script execution failed: internal error: Child process (LC_ALL=C PATH=/bin: " +
		"/etc/libvirt/hooks/qemu web prepare begin -) unexpected exit status 1: cannot start: it is shelved\n"
	if got := hookWords(message); got != "cannot start: it is shelved" {
		t.Errorf("hookWords = %q", got)
	}
	for _, other := range []string{"something else", "unexpected exit status 1"} {
		if got := hookWords(other); got != other {
			t.Errorf("hookWords(%q) = %q", other, got)
		}
	}
}
