// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/registry/internal/store"
)

const (
	// lookEvery is the interval of looks without notifications.
	lookEvery = time.Second
	// lookPause is the shortest interval of looks.
	lookPause = 100 * time.Millisecond
)

type streams struct {
	progress *store.Progress
	trail    *store.Trail
}

// send sends the result of look, once and then at every change, until look reports the last event.
// The first line is the present state. The events' numbers continue from the query parameter
// since, so that a disconnected client misses nothing. An error before the first line is the
// answer; a later error ends the stream.
func (s *streams) send(w http.ResponseWriter, r *http.Request, look func(context.Context) (e api.Event, last bool, err error)) error {
	since, err := sequence(r.URL.Query())
	if err != nil {
		return err
	}
	var (
		lines *httpjson.Stream
		sent  []byte
	)
	for seq := since + 1; ; {
		// Before the look, to miss no change.
		progress, commit := s.progress.Next(), s.trail.NextCommit()
		e, last, err := look(r.Context())
		if err != nil {
			return err
		}
		now, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encode line: %w", err)
		}
		if lines == nil {
			if lines, err = httpjson.NewStream(w); err != nil {
				return err
			}
		}
		if last || !bytes.Equal(now, sent) {
			e.Seq, e.At = seq, time.Now().UTC()
			if err := lines.Send(e); err != nil || last {
				return err
			}
			sent, seq = now, seq+1
		}
		if !await(r.Context(), progress, commit) {
			return nil
		}
	}
}

// await waits for a notification or lookEvery; false means that the client has disconnected.
func await(ctx context.Context, progress, commit <-chan struct{}) bool {
	if retry.Sleep(ctx, lookPause) != nil {
		return false
	}
	enough := time.NewTimer(lookEvery - lookPause)
	defer enough.Stop()
	select {
	case <-progress:
	case <-commit:
	case <-enough.C:
	case <-ctx.Done():
		return false
	}
	return true
}

func sequence(query url.Values) (int64, error) {
	if !query.Has("since") {
		return 0, nil
	}
	since, err := strconv.ParseInt(query.Get("since"), 10, 64)
	if err != nil || since < 0 {
		return 0, api.Errorf(api.CodeInvalidArgument, "the query parameter since is the sequence number of an event, not %.40q", query.Get("since"))
	}
	return since, nil
}
