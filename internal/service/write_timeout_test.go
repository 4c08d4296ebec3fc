// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of pipes, with deadlines in the time of a test bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// inBubble serves h as the servers of this package do, and calls test with a connection to it.
func inBubble(t *testing.T, h http.HandlerFunc, test func(t *testing.T, conn net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		s := newServer("test", h, quietLog, 10, func(context.Context) (net.Listener, error) { return l, nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		ours, theirs := net.Pipe()
		l.conns <- theirs
		test(t, ours)
		if err := errors.Join(ours.Close(), stopped(cancel, done)); err != nil {
			t.Error(err)
		}
	})
}

func stopped(cancel func(), done <-chan error) error {
	cancel()
	return <-done
}

func answer(t *testing.T, conn net.Conn) string {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func TestBodyThatDoesNotComeIsGivenUp(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		_, err := io.ReadAll(r.Body)
		fmt.Fprint(w, time.Since(begin), " ", errors.Is(err, context.DeadlineExceeded) || isTimeout(err))
	}, func(t *testing.T, conn net.Conn) {
		send(t, conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
		if got, want := answer(t, conn), "200 30s true"; got != want {
			t.Errorf("answer = %q, want %q", got, want)
		}
	})
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// After the body the server keeps reading to notice the end of the peer. A deadline there would end
// every request that waits.
func TestRequestWithABodyMayWaitForAnEventForAsLongAsItLikes(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		select {
		case <-time.After(time.Hour):
			fmt.Fprint(w, "the event")
		case <-r.Context().Done():
			fmt.Fprint(w, context.Cause(r.Context()))
		}
	}, func(t *testing.T, conn net.Conn) {
		for range 2 {
			send(t, conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
			if got, want := answer(t, conn), "200 the event"; got != want {
				t.Errorf("answer = %q, want %q", got, want)
			}
		}
	})
}

func TestWriteBoundOfOneRequestIsNotTheNextOnes(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-time.After(time.Hour)
			return // the server writes the answer itself
		}
		fmt.Fprint(w, r.URL.Path)
	}, func(t *testing.T, conn net.Conn) {
		for path, want := range map[string]string{"/quick": "200 /quick", "/slow": "200 "} {
			send(t, conn, "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
			answer(t, conn)
			send(t, conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			if got := answer(t, conn); got != want {
				t.Errorf("answer = %q, want %q", got, want)
			}
		}
	})
}

func TestPeerThatDoesNotReadItsAnswerIsCutOff(t *testing.T) {
	var ended chan time.Duration
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) {
		begin := time.Now()
		_, err := w.Write(make([]byte, 1<<20))
		if !isTimeout(err) {
			t.Errorf("write: %v, want a timeout", err)
		}
		ended <- time.Since(begin)
	}, func(t *testing.T, conn net.Conn) {
		ended = make(chan time.Duration, 1) // in the bubble
		send(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if took := <-ended; took != writeTimeout {
			t.Errorf("cut off after %s, want %s", took, writeTimeout)
		}
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	inBubble(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, conn net.Conn) {
		begin := time.Now()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(begin) != headerTimeout {
			t.Errorf("read: %v after %s, want EOF after %s", err, time.Since(begin), headerTimeout)
		}
	})
}
