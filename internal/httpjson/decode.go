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

// MaxBodyBytes is far above the largest honest request (an instance with a few
// dozen disks) and far below what would hurt.
const MaxBodyBytes = 1 << 20

const (
	// maxKeyLength bounds the Idempotency-Key of a client: it is stored with every
	// answer. It leaves room for what a daemon adds to make the keys of its own
	// requests from it.
	maxKeyLength = 96
	// maxDerivedKeyLength bounds those.
	maxDerivedKeyLength = 192
)

// Decode reads the body of r into v. The body must be one JSON document of at most 1 MiB,
// with members that v's type has, each at most once and with exactly its name, and with all
// members that the type requires. No body counts as a document without members. If v has a
// method Check, Decode calls it, and it refuses values that make no sense by themselves.
// Every other error is an invalid_argument that says what is wrong where.
//
// If the sender announces that it is newer, members that v's type does not have are left
// unread: the sender says separately which features it needs (protocol.Needs), and those
// were checked. From all other senders such members are refused as a person's mistake.
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

// Reference returns the first wildcard of the path of the route that serves r: the id, the
// name or the beginning of an id of a thing. It is empty if the path has no wildcard.
func Reference(r *http.Request) string {
	_, name, _ := strings.Cut(r.Pattern, "{")
	name, _, _ = strings.Cut(name, "}")
	return r.PathValue(name)
}

// IdempotencyKey returns the op id that the caller gave the request, "" if it
// gave none.
func IdempotencyKey(r *http.Request) (string, error) { return keyOf(r, maxKeyLength) }

// DerivedKey returns the IdempotencyKey of a request by a daemon, which makes several
// requests out of one that it was asked for, each with a key derived from that one's.
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
