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
)

const (
	// lookEvery is how often a stream looks when nothing is heard.
	lookEvery = time.Second
	// lookPause bounds how often it looks when much is.
	lookPause = 100 * time.Millisecond
)

// stream sends what look returns, once and then whenever it has changed, until
// look says that it was the last. The first line is always how things are now,
// and its number follows the one that the reader saw last, so that a reader who
// was cut off asks again and misses nothing. An error before the first line is
// the answer; after it the stream ends.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, look func(context.Context) (e api.Event, last bool, err error)) error {
	since, err := sequence(r.URL.Query())
	if err != nil {
		return err
	}
	var (
		lines *httpjson.Stream
		sent  []byte
	)
	for seq := since + 1; ; {
		// Before the look, so that nothing falls between look and wait.
		progress, commit := s.Store.NextProgress(), s.Store.NextCommit()
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

// await returns when there may be something new, false if nobody waits for it.
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

// sequence returns the query parameter since, 0 if it is missing.
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
