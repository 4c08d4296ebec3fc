// SPDX-License-Identifier: Apache-2.0

// Package expect has the checks of errors for the tests of all packages.
package expect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// OK ends the test if err is not nil.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value ends the test if err is not nil, and else returns v. Call it as Value(f())(t).
func Value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Refusal returns the error in the body of an answer of the API, or nil.
func Refusal(body []byte) *api.Error {
	var e api.ErrorBody
	_ = json.Unmarshal(body, &e)
	return e.Error
}

// Code ends the test unless err has the code want and contains each text of says. The code of nil
// is "".
func Code(t testing.TB, err error, want api.Code, says ...string) {
	t.Helper()
	if got := api.CodeOf(err); got != want {
		t.Fatalf("error %v (code %q), want code %q", err, got, want)
	}
	for _, text := range says {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Fatalf("error %v does not say %q", err, text)
		}
	}
}
