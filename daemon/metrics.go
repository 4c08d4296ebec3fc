// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/metrics"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/version"
)

// newMetrics returns the metrics of a daemon, which count the ops that end. The daemon's managers
// must have registered their plans with the runner.
func newMetrics(r *op.Runner) *metrics.Metrics {
	m := metrics.New(version.String(), r.Kinds())
	r.OnFinished(func(st op.Status) {
		m.OpFinished(st.Op.Kind, st.State, st.Failure)
		migrate.Notify(st, m)
	})
	return m
}

func metricsOf(cfg *config.Config, health *service.Health, virt hv.Hypervisor, up *uplink.Uplink, r *op.Runner, m *migrate.Manager, i *instance.Manager, s image.Storage, c *transfer.CopyEngine) metrics.Sources {
	return metrics.Sources{
		LibvirtUp: virt.Up, RegistryUp: up.Up, Fenced: func() bool { return up.Fence() != nil },
		JournalUp:        func() bool { return health.Up(journalProbe) },
		TasksRunning:     up.TasksRunning,
		CertificateEnds:  cfg.CertificateEnds,
		Parked:           func() int { return parked(r.Active()) + m.Released.GuestsOnReleasedSources() },
		OnReleased:       m.Released.GuestsOnReleasedSources,
		OpenMigrations:   m.Open,
		Unresumed:        func() int { return len(i.Unresumed()) },
		OverlayFreeBytes: m.Preflight.OverlayFreeBytes,
		ThinPools:        s.Privileged.ThinPools,
		CopyTotals:       c.Totals,
		GuestDisks:       func() []metrics.GuestDisk { return guestDisks(r.Active()) },
		DiskStats:        virt.DiskStats,
	}
}

func parked(active []op.Status) int {
	n := 0
	for i := range active {
		if active[i].State == op.StateNeedsOperator {
			n++
		}
	}
	return n
}

// guestDisks returns the disks that ops of migrations work on, each once. It omits ops that wait
// for the operator, which do not affect the guest.
func guestDisks(active []op.Status) []metrics.GuestDisk {
	var disks []metrics.GuestDisk
	for i := range active {
		instanceID, target, ok := migrate.GuestDisk(active[i].Op)
		disk := metrics.GuestDisk{InstanceID: instanceID, Target: target}
		if ok && active[i].State != op.StateNeedsOperator && !slices.Contains(disks, disk) {
			disks = append(disks, disk)
		}
	}
	return disks
}
