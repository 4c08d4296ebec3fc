// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/volferry/volferry/internal/api"

// advisedError is an error with its own exit status and, for people only, a
// line or more on how things stand and what to do: an operation that was taken
// on and did not end well, or a daemon that is not there.
type advisedError struct {
	err    *api.Error
	exit   int
	advice string
}

func (e *advisedError) Error() string { return e.err.Message }
func (e *advisedError) Unwrap() error { return e.err }

// detachedError is the wish of the user not to wait any longer.
type detachedError struct{ advice string }

func (e *detachedError) Error() string { return e.advice }

