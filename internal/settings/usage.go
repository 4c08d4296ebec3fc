// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
)

// UsageError is the error of a wrong command line. Nothing was done.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{err: fmt.Errorf(format, args...)} }

// The exit statuses of a daemon; volferryctl has these and more.
const (
	exitFailed = 1
	exitUsage  = 2
)

// ExitStatus returns the exit status of a daemon that ends with the non-nil error err.
func ExitStatus(err error) int {
	if usage := (*UsageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
