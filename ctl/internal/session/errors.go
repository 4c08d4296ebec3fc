// SPDX-License-Identifier: Apache-2.0

package session

import "github.com/volferry/volferry/internal/api"

// AdvisedError is an error with its own exit status. Advice is for people, not for scripts.
type AdvisedError struct {
	Err    *api.Error
	Exit   int
	Advice string
}

func (e *AdvisedError) Error() string { return e.Err.Message }
func (e *AdvisedError) Unwrap() error { return e.Err }

// DetachedError means that the user stopped waiting. The work continues.
type DetachedError struct{ Advice string }

func (e *DetachedError) Error() string { return e.Advice }
