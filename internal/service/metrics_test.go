// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAMetricsAddressThatIsTakenIsToldAndTriedAgain(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it stands for another program
	if err != nil {
		t.Fatal(err)
	}
	m := MetricsServer(other.Addr().String(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), new(Health), slog.New(slog.DiscardHandler))
	m.retry = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	select {
	case <-m.Ready():
	case err := <-ended:
		t.Fatalf("it ends the daemon: %v", err)
	}
	if c := m.Checks(); len(c) != 1 || c[0].Status != "warn" || !strings.Contains(c[0].Message, other.Addr().String()) {
		t.Errorf("while another program has the address the status is %+v", c)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for len(m.Checks()) > 0 {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + other.Addr().String() + "/metrics") //nolint:noctx // the test's own bound is enough
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("once the address is free: %v, %v", resp, err)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAMetricsAddressThatTheUnitForbidsEndsNothing(t *testing.T) {
	forbidden := &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EAFNOSUPPORT)}
	if !laterPerhaps(forbidden) {
		t.Error("it ends the daemon")
	}
	m := MetricsServer("192.0.2.11:9643", http.NotFoundHandler(), new(Health), slog.New(slog.DiscardHandler))
	m.note(forbidden)
	if c := m.Checks(); len(c) != 1 || c[0].Status != "warn" || !strings.Contains(c[0].Advice, "-metrics.socket` with the lines [Socket], ListenStream= and ListenStream=192.0.2.11:9643") {
		t.Errorf("the status is %+v", c)
	}
}

func TestAMetricsServerThatWaitsForItsAddressStops(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it stands for another program
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // nobody is connected
	m := MetricsServer(other.Addr().String(), http.NotFoundHandler(), new(Health), slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	<-m.Ready()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAMetricsAddressThatCanNeverBeIsAnError(t *testing.T) {
	m := MetricsServer("127.0.0.1:no-such-service", http.NotFoundHandler(), new(Health), slog.New(slog.DiscardHandler))
	if err := m.Run(t.Context()); err == nil {
		t.Error("it waits for what cannot be")
	}
}
