// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/journal"
	"github.com/volferry/volferry/daemon/internal/metrics"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/service"
)

const journalProbe = "journal"

// healthOf returns the conditions for the readiness of this daemon to move a volume, and the
// probes that show whether it hangs. The probe of the migrations is not vital, and causes no
// restart: migrations may wait for storage that hangs.
func healthOf(records *journal.Journal, r *op.Runner, m *migrate.Manager, virt hv.Hypervisor, up *uplink.Uplink, numbers *metrics.Metrics) *service.Health {
	engine := func(context.Context) error {
		r.Active() // it takes every lock of the engine; ops hold them only briefly
		return nil
	}
	return service.NewHealth([]service.Probe{
		{Name: journalProbe, Try: records.Probe, Vital: true},
		{Name: "engine", Try: engine, Vital: true},
		{Name: "migrations", Try: m.Probe},
	},
		holds("libvirt", virt.Up, "libvirt does not answer"),
		service.Condition{Name: "registry", Err: func() error {
			if err := up.Err(); err != nil || up.Up() {
				return err
			}
			return errors.New("the registry has not answered yet")
		}},
		service.Condition{Name: "epoch", Err: up.Admit},
		holds("recovery", numbers.HasReconciled, "what was open when the daemon started has not been taken up yet"),
	)
}

func holds(name string, ok func() bool, otherwise string) service.Condition {
	return service.Condition{Name: name, Err: func() error {
		if ok() {
			return nil
		}
		return errors.New(otherwise)
	}}
}
