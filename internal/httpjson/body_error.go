// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

func clip(text string) string {
	const enough = 300
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

func bodyError(err error) error {
	var (
		tooLarge *http.MaxBytesError
		syntax   *json.SyntaxError
		kind     *json.UnmarshalTypeError
	)
	text := err.Error()
	switch {
	case errors.As(err, &tooLarge):
		text = fmt.Sprintf("the request body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(err, io.EOF):
		text = "the request body is empty; it has to be a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		text = "the request body ends in the middle of its JSON document"
	case errors.As(err, &syntax):
		text = fmt.Sprintf("the request body is not JSON: %v at byte %d", syntax, syntax.Offset)
	case errors.As(err, &kind) && kind.Field != "":
		text = fmt.Sprintf("the field %q of the request body cannot be a JSON %s", memberPath(kind.Field), kind.Value)
	case errors.As(err, &kind):
		text = fmt.Sprintf("the request body cannot be a JSON %s", kind.Value)
	case strings.HasPrefix(text, "json: unknown field "):
		text = "the request body has the " + strings.TrimPrefix(text, "json: ") + ", which is not part of this request"
	default:
		text = "the request body cannot be read: " + text
	}
	return &api.Error{Code: api.CodeInvalidArgument, Message: clip(text)}
}

// memberPath removes, from the path of a member in an error of encoding/json, the names of
// embedded Go structs, which the document lacks.
func memberPath(path string) string {
	names := slices.DeleteFunc(strings.Split(path, "."), token.IsExported)
	return strings.Join(names, ".")
}
