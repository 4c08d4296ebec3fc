// SPDX-License-Identifier: Apache-2.0

// Package service is the skeleton of a daemon: its tasks, its readiness and
// end as systemd wants to hear of them, its log, and its HTTP servers. It knows
// nothing of what the tasks do.
package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/volferry/volferry/internal/api"
)

// Run runs the tasks until one fails, ctx ends, or the process gets SIGINT or SIGTERM; a
// second signal kills it. It notifies systemd of every step, drives health, and feeds the
// watchdog while the program is alive. Tasks end in no order, so what they share must live
// on until Run returns; so must what the probes use.
func Run(ctx context.Context, log *slog.Logger, health *Health, tasks ...Task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error {
			if err := t.Run(ctx); err != nil {
				return fmt.Errorf("%s: %w", t, err)
			}
			return nil
		})
	}
	group.Go(func() error {
		announceReady(ctx, log, tasks)
		return nil
	})
	group.Go(func() error {
		health.watch(ctx, log, tasks)
		return nil
	})
	group.Go(func() error {
		keepWatchdogContent(ctx, log, health)
		return nil
	})
	group.Go(func() error {
		select {
		case s := <-signals:
			log.Info("stopping", "signal", s.String())
			// From here on a signal does what it does by default.
			signal.Stop(signals)
			cancel()
		case <-ctx.Done():
		}
		notify(log, daemon.SdNotifyStopping)
		return nil
	})
	return group.Wait()
}

// announceReady says READY once every task is, and until then which it waits
// for.
func announceReady(ctx context.Context, log *slog.Logger, tasks []Task) {
	for i, t := range tasks {
		notify(log, "STATUS=starting: "+names(tasks[i:]))
		select {
		case <-t.Ready():
		case <-ctx.Done():
			return
		}
	}
	notify(log, daemon.SdNotifyReady+"\nSTATUS=ready")
	log.Info("ready")
}

// NotifyFailed tells systemd, if it started us, by which error the program ends: the unit has it
// as its status until the next start.
func NotifyFailed(err error) {
	// Where systemd does not hear it, the log has it too.
	_, _ = daemon.SdNotify(false, "STATUS="+api.UnitFailed+strings.Join(strings.Fields(err.Error()), " "))
}

// keepWatchdogContent tells systemd that the program is alive, for as long as it is. What
// hangs is said in the log before systemd ends the program by SIGABRT, whose trace
// has where it hangs.
func keepWatchdogContent(ctx context.Context, log *slog.Logger, health *Health) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog of the unit cannot be used", "err", err)
		return
	}
	if interval == 0 {
		return
	}
	// Half of the interval, so that a single late tick does not have systemd end us.
	eachWhileAlive(ctx, log, interval/2, health, func() { notify(log, daemon.SdNotifyWatchdog) })
}

// eachWhileAlive calls do at each interval at which the program is alive, until ctx ends.
func eachWhileAlive(ctx context.Context, log *slog.Logger, interval time.Duration, health *Health, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	logged := false
	for {
		select {
		case <-tick.C:
			err := worst(health.alive())
			if err == nil {
				do()
			} else if !logged {
				log.Error("this program hangs, and its watchdog is told no more", "err", err)
			}
			logged = err != nil
		case <-ctx.Done():
			return
		}
	}
}

// notify tells systemd, if it started us. What it does not hear it will ask
// for by its own timeouts, so an error is only logged.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd was not told", "state", state, "err", err)
	}
}
