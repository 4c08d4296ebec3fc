// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// answerTimeout is far above what anything here may take.
const answerTimeout = 30 * time.Second

// host is a hypervisor as the registry knows it.
type host struct {
	id, name string
	tls      *tls.Config
	headers  []byte // of every request
}

func newHost(a *authority, id, name string) (*host, error) {
	config, err := a.client(id, name)
	if err != nil {
		return nil, err
	}
	return &host{id: id, name: name, tls: config, headers: fmt.Appendf(nil,
		" HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\nVolferry-Host: %s\r\nVolferry-Epoch: 1\r\n", id)}, nil
}

// conn is a connection of a host, with one request on its way at a time. It is
// HTTP/1.1 by hand: what the load costs is not what is to be measured.
type conn struct {
	host *host
	tls  *tls.Conn
	out  []byte
	in   []byte
}

func dial(ctx context.Context, address string, h *host) (*conn, error) {
	c, err := (&tls.Dialer{Config: h.tls}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to the registry: %w", err)
	}
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, errors.Join(errors.New("connect to the registry: not by TLS"), c.Close())
	}
	return &conn{host: h, tls: t, in: make([]byte, 0, 2048)}, nil
}

func (c *conn) close() {
	if c.tls != nil {
		_ = c.tls.Close()
	}
}

// post sends a request and returns the body of its answer, which is good until
// the next one. An answer that is no success is an error.
func (c *conn) post(path, key string, body []byte) ([]byte, error) {
	c.out = append(append(c.out[:0], "POST "...), path...)
	c.out = append(c.out, c.host.headers...)
	if key != "" {
		c.out = append(append(append(c.out, "Idempotency-Key: "...), key...), "\r\n"...)
	}
	c.out = append(c.out, "Content-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(append(c.out, "\r\n\r\n"...), body...)
	if err := c.tls.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	if _, err := c.tls.Write(c.out); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	status, answer, err := c.read()
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("POST %s: answer %d: %s", path, status, answer)
	}
	return answer, err
}

var (
	headEnd       = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

// read reads an answer, which has to have a Content-Length.
func (c *conn) read() (status int, body []byte, err error) {
	c.in = c.in[:0]
	head, length := -1, 0
	for head < 0 || len(c.in) < head+length {
		if len(c.in) == cap(c.in) {
			c.in = append(c.in, make([]byte, cap(c.in))...)[:len(c.in)]
		}
		n, err := c.tls.Read(c.in[len(c.in):cap(c.in)])
		if err != nil {
			return 0, nil, fmt.Errorf("read answer: %w", err)
		}
		c.in = c.in[:len(c.in)+n]
		if end := bytes.Index(c.in, headEnd); head < 0 && end >= 0 {
			if status, length, err = parseHead(c.in[:end+2]); err != nil {
				return 0, nil, err
			}
			head = end + len(headEnd)
		}
	}
	return status, c.in[head : head+length], nil
}

func parseHead(head []byte) (status, length int, err error) {
	_, rest, found := bytes.Cut(head, contentLength)
	if !found || len(head) < 12 {
		return 0, 0, fmt.Errorf("read answer: no Content-Length in %q", head)
	}
	digits, _, _ := bytes.Cut(rest, []byte("\r"))
	status, statusErr := strconv.Atoi(string(head[9:12]))
	length, lengthErr := strconv.Atoi(string(digits))
	return status, length, errors.Join(statusErr, lengthErr)
}
