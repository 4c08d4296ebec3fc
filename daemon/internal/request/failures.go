// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

type failer interface {
	error
	Failure() op.Failure
}

// Describe converts an error to the failure that the journal keeps. All runners use it as
// Config.Describe.
func Describe(err error) op.Failure {
	if own, ok := errors.AsType[failer](err); ok {
		return own.Failure()
	}
	var refused *api.Error
	switch {
	case errors.As(err, &refused):
		return op.Failure{Code: string(refused.Code), Message: refused.Message, Details: refused.Details}
	case errors.Is(err, op.ErrJournal):
		return op.Failure{Code: string(api.CodeJournalUnavailable), Message: err.Error()}
	case errors.Is(err, hv.ErrUnavailable):
		return op.Failure{Code: string(api.CodeHypervisorUnavailable), Message: err.Error()}
	case errors.Is(err, hv.ErrUnsupported):
		return op.Failure{Code: string(api.CodeUnsupportedDisk), Message: err.Error()}
	case errors.Is(err, hv.ErrBusy):
		return op.Failure{Code: string(api.CodeInstanceBusy), Message: err.Error() + "; if the job of another program (a backup, a block job) is in the way, try again once it is over"}
	case errors.Is(err, hv.ErrInUse):
		return op.Failure{Code: string(api.CodeVolumeInUse), Message: err.Error()}
	case errors.Is(err, hv.ErrExists):
		return op.Failure{Code: string(api.CodeConflict), Message: err.Error()}
	}
	return op.Failure{Code: string(api.CodeInternal), Message: err.Error()}
}

// APIError returns a failure from the journal as an *api.Error, or nil for nil.
func APIError(f *op.Failure) *api.Error {
	if f == nil {
		return nil
	}
	return &api.Error{Code: api.Code(f.Code), Message: f.Message, Details: f.Details}
}

// JournalError returns the error of a request that needs an unreadable journal.
func JournalError(err error) *api.Error {
	return api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
}
