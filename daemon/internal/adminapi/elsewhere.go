// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// elsewhere returns refusals for calls that only the registry answers. They have the registry's
// address.
func (s *Server) elsewhere() []httpjson.Elsewhere {
	refused := api.Errorf(api.CodeNotFound, "only the registry does this, and here the daemon of host %s answers: ask the registry at %s", s.HostName, s.RegistryAddress).
		With(api.DetailRegistry, s.RegistryAddress)
	return routes.Elsewhere(func(d *routes.Declaration) bool { return d.Daemon != nil }, refused)
}

func (s *Server) addressed(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := next(w, r)
		var e *api.Error
		if errors.As(err, &e) && e.Code == api.CodeNotYourHost {
			return withAddress(e, s.RegistryAddress)
		}
		return err
	}
}

func withAddress(e *api.Error, address string) *api.Error {
	said := *e
	said.Details = maps.Clone(e.Details) // other callers may share the error
	return said.With(api.DetailRegistry, address)
}

// addAddress adds the registry's address to a refusal that the registry has sent. It does not
// change other answers.
func addAddress(resp *http.Response, address string) error {
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return fmt.Errorf("read the registry's answer: %w", err)
	}
	var body api.ErrorBody
	if json.Unmarshal(text, &body) == nil && body.Error != nil {
		if said, err := json.Marshal(api.ErrorBody{Error: withAddress(body.Error, address)}); err == nil {
			text = append(said, '\n')
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}
