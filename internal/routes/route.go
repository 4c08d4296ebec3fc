// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// Route is a call with the types of its body and its answer. In is None if there is no body, Out
// is None if the answer has no member to decode.
type Route[In, Out any] struct {
	*Declaration
	query url.Values
}

// None is the type of an absent body or answer.
type None struct{}

// With returns the route with a query parameter, unless value is empty.
func (r Route[In, Out]) With(name, value string) Route[In, Out] {
	if value == "" {
		return r
	}
	r.query = maps.Clone(r.query)
	if r.query == nil {
		r.query = url.Values{}
	}
	r.query.Set(name, value)
	return r
}

// PathOf returns the path of a request, like Declaration.PathOf, with the parameters of With.
func (r Route[In, Out]) PathOf(refs ...string) string {
	path := r.Declaration.PathOf(refs...)
	if len(r.query) > 0 {
		path += "?" + r.query.Encode()
	}
	return path
}

// WithoutBody returns the route without its optional body.
func (r Route[In, Out]) WithoutBody() Route[None, Out] {
	return Route[None, Out](r)
}

// Body returns its argument as the body of a client's request, or nil if its type is None.
func (r Route[In, Out]) Body(in In) any {
	if _, none := any(in).(None); none {
		return nil
	}
	return in
}

// Decode reads the body of a request, like httpjson.Decode, unless In is None.
func (r Route[In, Out]) Decode(req *http.Request) (in In, err error) {
	if _, none := any(in).(None); none {
		return in, nil
	}
	err = httpjson.Decode(req, &in)
	return in, err
}

// Write answers with a document that has the value out under the route's noun.
func (r Route[In, Out]) Write(w http.ResponseWriter, status int, out Out) error {
	return httpjson.Write(w, status, r.Noun, out)
}

// Stream is a route that answers with events, one per line.
type Stream = Route[None, api.Event]
