// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// maxBodyBytes is far above the largest honest request (an instance with a few
// dozen disks) and far below what would hurt.
const maxBodyBytes = 1 << 20

const (
	// maxKeyLength bounds the Idempotency-Key of a client: it is stored with every
	// answer. It leaves room for what a daemon adds to make the keys of its own
	// requests from it.
	maxKeyLength = 96
	// maxDerivedKeyLength bounds those.
	maxDerivedKeyLength = 192
)

// Decode reads the body of r, which must be one JSON document of at most 1 MiB, into
// v. Its members are those of v's type, each at most once, with exactly its name, and
// those that the type requires. No body at all is a document without members. If v has a
// method Check, that refuses what makes no sense by itself. Every other error is an invalid_argument that says what is wrong where.
//
// Members that v's type does not have are left unread where the sender announces that it is
// newer: it says apart from them what it needs (protocol.Needs), which was checked. Of
// everybody else they are refused: a person has made a mistake.
func Decode(r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	if err != nil {
		return bodyError(err)
	}
	kind := reflect.TypeOf(v).Elem()
	if len(bytes.TrimSpace(body)) > 0 || needsBody(kind) {
		if err := decodeExactly(body, kind, v, protocol.AnnouncedIn(r.Header).IsNewer()); err != nil {
			return err
		}
	}
	if c, ok := v.(interface{ Check() error }); ok {
		return c.Check() //nolint:wrapcheck // it is the answer
	}
	return nil
}

func decodeExactly(body []byte, kind reflect.Type, v any, newer bool) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if !newer {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return api.Errorf(api.CodeInvalidArgument, "the request body has something after its JSON document")
	}
	return checkDocument(body, kind, newer)
}

// Reference is the first wildcard of the path of the route that serves r, however it is
// called: the id, the name or the beginning of an id of a thing. It is empty where the
// path has none.
func Reference(r *http.Request) string {
	_, name, _ := strings.Cut(r.Pattern, "{")
	name, _, _ = strings.Cut(name, "}")
	return r.PathValue(name)
}

// IdempotencyKey returns the op id that the caller gave the request, "" if it
// gave none.
func IdempotencyKey(r *http.Request) (string, error) { return keyOf(r, maxKeyLength) }

// DerivedKey is IdempotencyKey where the caller is a daemon, which makes several
// requests of one that it was asked.
func DerivedKey(r *http.Request) (string, error) { return keyOf(r, maxDerivedKeyLength) }

func keyOf(r *http.Request, most int) (string, error) {
	key := r.Header.Get(api.IdempotencyKeyHeader)
	if len(key) > most {
		return "", api.Errorf(api.CodeInvalidArgument, "the %s has %d characters and may have %d; a UUID will do", api.IdempotencyKeyHeader, len(key), most)
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return "", api.Errorf(api.CodeInvalidArgument, "the %s has a character that is not visible ASCII", api.IdempotencyKeyHeader)
		}
	}
	return key, nil
}
