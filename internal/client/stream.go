// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/volferry/volferry/internal/api"
)

// Stream reads an NDJSON stream of events until the stream ends, the caller stops, or ctx ends. An
// error, as in Do, is the last value that it yields. After a broken connection the caller may
// begin another stream after the last Seq.
func (c *Client) Stream(ctx context.Context, path string, opts ...Option) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		resp, err := c.send(ctx, http.MethodGet, path, nil, newCall(opts))
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		dec := json.NewDecoder(resp.Body)
		for {
			var e api.Event
			err := dec.Decode(&e)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(api.Event{}, c.transportError(ctx, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}
