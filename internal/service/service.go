// SPDX-License-Identifier: Apache-2.0

// Package service is the frame of a daemon: its tasks, its notifications to systemd, its log, and
// its HTTP servers.
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

// Run runs the tasks until one fails, ctx ends, or the process gets SIGINT or SIGTERM. A second
// signal kills the process. Run notifies systemd of each state, runs the probes of health, and
// feeds the watchdog while the program is alive. Tasks end in any order, so objects that they or
// the probes share must live until Run returns.
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
			// The next signal has its default effect.
			signal.Stop(signals)
			cancel()
		case <-ctx.Done():
		}
		notify(log, daemon.SdNotifyStopping)
		return nil
	})
	return group.Wait()
}

// announceReady sets the unit's status to the tasks that are not ready yet, and notifies systemd
// once all tasks are ready.
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

// NotifyFailed reports the error that ends the program to systemd. It is the unit's status until
// the next start.
func NotifyFailed(err error) {
	// The log has the error too.
	_, _ = daemon.SdNotify(false, "STATUS="+api.UnitFailed+strings.Join(strings.Fields(err.Error()), " "))
}

// keepWatchdogContent feeds systemd's watchdog while the program is alive. If a vital probe hangs,
// the log names it before systemd ends the program with SIGABRT, which prints the goroutines.
func keepWatchdogContent(ctx context.Context, log *slog.Logger, health *Health) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog of the unit cannot be used", "err", err)
		return
	}
	if interval == 0 {
		return
	}
	// Half the interval, so that one late tick does not end the program.
	eachWhileAlive(ctx, log, interval/2, health, func() { notify(log, daemon.SdNotifyWatchdog) })
}

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

// notify notifies systemd, if systemd started the program. It only logs errors: systemd has its
// own timeouts.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd was not told", "state", state, "err", err)
	}
}
