// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/shell"
)

// metricsRetry is the delay between attempts to open an address that is in use.
const metricsRetry = 10 * time.Second

// Metrics is a task that serves /metrics, /healthz and /readyz at a TCP address. It tries again
// until it can open the address.
type Metrics struct {
	address string
	handler http.Handler
	retry   time.Duration
	log     *slog.Logger
	ready   chan struct{}
	once    sync.Once

	mu      sync.Mutex
	trouble error
}

// MetricsServer returns the task for these metrics and this health.
func MetricsServer(address string, metrics http.Handler, health *Health, log *slog.Logger) *Metrics {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET /healthz", report(health.alive))
	mux.Handle("GET /readyz", report(health.ready))
	return &Metrics{address: address, handler: mux, retry: metricsRetry, log: log, ready: make(chan struct{})}
}

// Run implements Task. An address that may become available later is no error.
func (m *Metrics) Run(ctx context.Context) error {
	listener, err := m.listen(ctx)
	if listener == nil {
		return err
	}
	return newServer(m.String(), m.handler, m.log, maxSocketConnections, func(context.Context) (net.Listener, error) {
		return listener, nil
	}).Run(ctx)
}

// listen opens the address. If ctx ends before, it returns nil without an error.
func (m *Metrics) listen(ctx context.Context) (listener net.Listener, err error) {
	err = retry.Do(ctx, retry.Backoff{First: m.retry, Max: m.retry}, retry.Forever, func() (err error) {
		listener, err = handedOver("tcp", m.address)
		if listener == nil && err == nil {
			listener, err = new(net.ListenConfig).Listen(ctx, "tcp", m.address)
		}
		if err == nil || laterPerhaps(err) && ctx.Err() == nil {
			m.note(err)
			m.once.Do(func() { close(m.ready) })
		}
		return err
	}, laterPerhaps)
	switch {
	case err == nil:
		return listener, nil
	case ctx.Err() != nil:
		return nil, nil //nolint:nilnil,nilerr // ctx has ended; nothing is open
	}
	return nil, fmt.Errorf("start server: %w", err)
}

// laterPerhaps reports whether the address may become available later: another program has it, or
// this program's unit forbids to open addresses.
func laterPerhaps(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

func (m *Metrics) note(err error) {
	m.mu.Lock()
	before := m.trouble
	m.trouble = err
	m.mu.Unlock()
	switch {
	case err != nil && before == nil:
		m.log.Error("the metrics are not served, and all else is; the address is tried again", "address", m.address, "err", err)
	case err == nil && before != nil:
		m.log.Info("the metrics are served now", "address", m.address)
	}
}

// Checks returns a warning for the program's status unless the metrics are served.
func (m *Metrics) Checks() []api.Check {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.trouble == nil {
		return nil
	}
	advice := "`ss -ltnp` says which program has the address; end it, or set metrics_listen"
	if errors.Is(m.trouble, syscall.EAFNOSUPPORT) {
		program := filepath.Base(os.Args[0])
		advice = fmt.Sprintf("the unit of this program has no network of its own, so systemd opens the address: `%s` with the lines [Socket], ListenStream= and ListenStream=%s; then `%s` and `%s`",
			shell.Line("systemctl", "edit", program+"-metrics.socket"), m.address,
			shell.Line("systemctl", "stop", program+".socket", program+"-metrics.socket", program+".service"), shell.Line("systemctl", "start", program+".socket", program+".service"))
	}
	return []api.Check{{
		Name: "metrics", Status: "warn", Message: fmt.Sprintf("not served at %s: %v", m.address, m.trouble), Advice: advice,
	}}
}

// Ready is closed after the first try to open the address, even if it failed.
func (m *Metrics) Ready() <-chan struct{} { return m.ready }

// String implements Task.
func (m *Metrics) String() string { return "metrics " + m.address }
