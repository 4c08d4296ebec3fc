// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
)

func askHost[Out any](ctx context.Context, via *relay.Relay, who string, host api.Host, route routes.Route[routes.None, Out], refs ...string) (out Out, err error) {
	return answerOf[Out](ctx, via, relay.Request{
		HostID: host.ID, HostName: host.Name, Who: who, Method: route.Method, Path: route.PathOf(refs...),
	}, route.Noun)
}

func answerOf[Out any](ctx context.Context, via *relay.Relay, req relay.Request, noun string) (out Out, err error) {
	status, body, err := via.Do(ctx, req)
	if err != nil {
		return out, err
	}
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return out, fmt.Errorf("read what host %s says of %s: %w", req.HostName, req.Path, err)
	}
	if status != http.StatusOK {
		var refused api.ErrorBody
		if err := json.Unmarshal(body, &refused); err == nil && refused.Error != nil {
			return out, refused.Error
		}
		return out, api.Errorf(api.CodeInternal, "host %s answered %d to the question for %s", req.HostName, status, req.Path)
	}
	if err := json.Unmarshal(answer[noun], &out); err != nil {
		return out, fmt.Errorf("read what host %s says of %s: %w", req.HostName, req.Path, err)
	}
	return out, nil
}
