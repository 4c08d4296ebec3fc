// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

const maxVersionBytes = 64 << 10

func (c *connection) identify(ctx context.Context, conn net.Conn) (id, process string, err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	route := routes.ShowRegistryVersion
	r, err := http.NewRequestWithContext(ctx, route.Method, c.base.String()+route.PathOf(), http.NoBody)
	if err != nil {
		return "", "", err
	}
	if err := r.Write(conn); err != nil {
		return "", "", errors.Join(err, ctx.Err())
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return "", "", errors.Join(err, ctx.Err())
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxVersionBytes))
	if err := errors.Join(err, resp.Body.Close(), ctx.Err()); err != nil {
		return "", "", err
	}
	if resp.Close || !stop() {
		return "", "", errors.Join(errors.New("the connection was not kept"), ctx.Err())
	}
	id, process, ok := strings.Cut(resp.Header.Get(api.RegistryHeader), " ")
	if !ok || id == "" || process == "" {
		return "", "", api.Errorf(c.unavailable, "%s does not say which registry it is: in a list it has to; look what answers there, or give one URL", c.target)
	}
	return id, process, nil
}
