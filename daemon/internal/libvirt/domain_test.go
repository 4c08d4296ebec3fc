// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"
)

func TestOnlyAPausedDomainThatIsStartingUpIsStarting(t *testing.T) {
	for _, c := range []struct {
		state  golibvirt.DomainState
		reason golibvirt.DomainPausedReason
		want   bool
	}{
		{golibvirt.DomainPaused, golibvirt.DomainPausedStartingUp, true},
		{golibvirt.DomainPaused, golibvirt.DomainPausedUser, false},
		{golibvirt.DomainRunning, golibvirt.DomainPausedStartingUp, false}, // a reason belongs to one state
	} {
		if got := isStarting(c.state, int32(c.reason)); got != c.want {
			t.Errorf("state %d, reason %d: starting is %t, want %t", c.state, c.reason, got, c.want)
		}
	}
}
