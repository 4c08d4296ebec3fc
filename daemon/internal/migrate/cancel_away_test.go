// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// copying is a migration with a copy that is blocked until it is released.
func (d *daemon) copying() (mig api.Migration, letGo func()) {
	d.t.Helper()
	gate := make(chan struct{})
	d.world.Copier.Gate = gate
	mig = d.begin(toNewPool)
	_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
	must(d.t, err)
	return d.until(mig.ID, api.MigrationCopying), func() { close(gate) }
}

// Nothing was changed then, as the refusal states.
func TestACancelWithoutLibvirtStopsNothing(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, letGo := d.copying()
		d.world.Disconnect()
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		if api.CodeOf(err) != api.CodeHypervisorUnavailable || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), "cancel again") {
			t.Errorf("cancel: %v, want hypervisor_unavailable", err)
		}
		synctest.Wait()
		if now := d.get(mig.ID); now.State != api.MigrationCopying || now.Error != nil {
			t.Errorf("the migration is %s, %v; want that it copies", now.State, now.Error)
		}
		d.world.Reconnect()
		d.manager().Wake(true, false)
		letGo()
		d.until(mig.ID, api.MigrationCopied)
	})
}

// Between the look and the cancel libvirt becomes unavailable: the copy is already stopped.
func TestACancelThatCouldOnlyStopTheCopySaysSo(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, _ := d.copying()
		d.world.Inject(hvtest.Fault{Call: "Domain", Nth: 2, Do: d.world.Disconnect})
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		if api.CodeOf(err) != api.CodeHypervisorUnavailable || strings.Contains(err.Error(), "nothing was changed") ||
			!strings.Contains(err.Error(), "the copy was stopped") || !strings.Contains(err.Error(), "volferryctl migration cancel "+mig.ID) {
			t.Errorf("cancel: %v, want what was stopped and what to do", err)
		}
		if now := d.get(mig.ID); now.State != api.MigrationStarted || !now.Stopped() {
			t.Errorf("the migration is %s, stopped %v; want started and stopped", now.State, now.Stopped())
		}
		d.world.Reconnect()
		d.manager().Wake(true, false)
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}
