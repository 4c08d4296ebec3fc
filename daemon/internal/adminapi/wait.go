// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const maxWait = 10 * time.Minute

func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxWait {
		return 0, api.Errorf(api.CodeInvalidArgument, "wait is %q; it is a duration such as 30s, at most %s", text, maxWait)
	}
	return d, nil
}
