// SPDX-License-Identifier: Apache-2.0

package hv

import "errors"

// NotAskedError is an ErrUnavailable: libvirt is up, but the program that looks at processes for
// the daemon is not available.
type NotAskedError struct{ Err error }

func (e *NotAskedError) Error() string { return e.Err.Error() }
func (e *NotAskedError) Unwrap() error { return e.Err }

// Is reports whether a target is ErrUnavailable.
func (e *NotAskedError) Is(target error) bool { return target == ErrUnavailable } //nolint:errorlint // of an Is method

// Unanswered returns the message of a request that was refused before any change because of an
// ErrUnavailable. The message names the component that does not answer.
func Unanswered(err error) string {
	component := "libvirt does not answer"
	if notAsked, ok := errors.AsType[*NotAskedError](err); ok {
		component = notAsked.Error()
	}
	return component + "; nothing was changed"
}
