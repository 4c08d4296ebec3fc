// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/volferry/volferry/internal/api"
)

func (s *Server) attachments(r *http.Request, query url.Values) ([]api.Attachment, error) {
	return s.Store.Attachments(r.Context(), query.Get("volume"), query.Get("instance"), viewerOf(r))
}

// boolean returns a query parameter that is 1, 0, true or false, and false if
// it is missing.
func boolean(query url.Values, name string) (bool, error) {
	if !query.Has(name) {
		return false, nil
	}
	v, err := strconv.ParseBool(query.Get(name))
	if err != nil {
		return false, api.Errorf(api.CodeInvalidArgument, "the query parameter %s is 1 or 0, not %.40q", name, query.Get(name))
	}
	return v, nil
}
