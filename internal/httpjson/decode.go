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

// MaxBodyBytes is far above the largest legitimate request, an instance with a few dozen disks.
const MaxBodyBytes = 1 << 20

const (
	// maxKeyLength limits the Idempotency-Key of a client: it is stored with every answer.
	maxKeyLength = 96
	// maxDerivedKeyLength limits the keys that a daemon derives from a client's key.
	maxDerivedKeyLength = 192
)

// Decode reads the body of r, one JSON document of at most 1 MiB, into v. The document's members
// must be fields of v's type, each at most once and with its exact name, and include all required
// ones. An empty body counts as a document without members. If v has a method Check, Decode
// returns its result. All other errors are invalid_argument, and name the fault and its place.
//
// If the sender announces a newer protocol, Decode ignores unknown members: NewHandler has refused
// requests that need a feature which this program lacks (protocol.Needs).
func Decode(r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxBodyBytes))
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

// Reference returns the value of the first wildcard in the path of r's route (an id, a name or the
// prefix of an id), or "".
func Reference(r *http.Request) string {
	_, name, _ := strings.Cut(r.Pattern, "{")
	name, _, _ = strings.Cut(name, "}")
	return r.PathValue(name)
}

// IdempotencyKey returns the op id of the request, or "".
func IdempotencyKey(r *http.Request) (string, error) { return keyOf(r, maxKeyLength) }

// DerivedKey is IdempotencyKey for a request of a daemon. It allows longer keys, because a daemon
// derives them from the key of a client's request.
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
