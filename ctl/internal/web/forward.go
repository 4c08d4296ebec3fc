// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// forwarded has the routes that the page reads. The server passes on no other request.
var forwarded = []*routes.Declaration{
	routes.ShowStatus.Declaration,
	routes.RunDoctor.Declaration,
	routes.ListHosts.Declaration,
	routes.ListPools.Declaration,
	routes.ListVolumes.Declaration,
	routes.ListInstances.Declaration,
	routes.ListMigrations.Declaration,
	routes.ShowMigration.Declaration,
	routes.ListDrains.Declaration,
	routes.ListOps.Declaration,
	routes.ListEvents.Declaration,
}

// writeTimeout bounds how long a browser may leave a part of an answer unread.
const writeTimeout = 30 * time.Second

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

type forwarder struct {
	transport http.RoundTripper
	base      *url.URL
}

// handler forwards a read of route d: the names in its path and its query, with this program's
// protocol header, but no cookie or header of the browser.
func (f *forwarder) handler(d *routes.Declaration) http.Handler {
	names := wildcard.FindAllStringSubmatch(d.Path, -1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refs := make([]string, len(names))
		for i, name := range names {
			refs[i] = r.PathValue(name[1])
		}
		target := f.base.String() + d.PathOf(refs...)
		if r.URL.RawQuery != "" {
			target += "?" + r.URL.RawQuery
		}
		ask, err := http.NewRequestWithContext(r.Context(), d.Method, target, nil)
		if err != nil {
			writeError(w, http.StatusBadRequest, api.Errorf(api.CodeInvalidArgument, "cannot make a request of %.80q", r.URL.RawQuery))
			return
		}
		protocol.Announce(ask.Header) // the page requests all pages of a list
		resp, err := f.transport.RoundTrip(ask)
		if err != nil {
			writeError(w, http.StatusBadGateway, api.Errorf(api.CodeHypervisorUnavailable, "%v", err))
			return
		}
		defer func() { _ = resp.Body.Close() }()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		out := &flusher{w, http.NewResponseController(w)}
		_, _ = out.Write(nil) // a stream begins before its first line
		// If the stream breaks, the browser sees the answer end, and asks again.
		_, _ = io.Copy(out, resp.Body)
	})
}

// flusher sends every write at once: a stream's line must not wait for the next.
type flusher struct {
	w       io.Writer
	control *http.ResponseController
}

func (f *flusher) Write(p []byte) (int, error) {
	if err := f.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err //nolint:wrapcheck // nobody reads it
	}
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err //nolint:wrapcheck // nobody reads it
}

func writeError(w http.ResponseWriter, status int, e *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.ErrorBody{Error: e})
}
