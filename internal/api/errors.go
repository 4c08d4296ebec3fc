// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net/http"
)

// Code names one kind of error. A code is never renamed or reused.
type Code string

// The closed list of error codes (public contract).
const (
	CodeInvalidArgument       Code = "invalid_argument"
	CodePermissionDenied      Code = "permission_denied"
	CodePolicyDenied          Code = "policy_denied"
	CodeNotYourHost           Code = "not_your_host"
	CodeRootDetachForbidden   Code = "root_detach_forbidden"
	CodeRootAttachForbidden   Code = "root_attach_forbidden"
	CodeRootVolumeMissing     Code = "root_volume_missing"
	CodeNotFound              Code = "not_found"
	CodeConflict              Code = "conflict"
	CodeVolumeInUse           Code = "volume_in_use"
	CodeVolumeNotAvailable    Code = "volume_not_available"
	CodeMultiattached         Code = "multiattached"
	CodeMigrationActive       Code = "migration_active"
	CodeNoMigration           Code = "no_migration"
	CodeStateForbidden        Code = "state_forbidden"
	CodeInstanceBusy          Code = "instance_busy"
	CodeInstanceLocked        Code = "instance_locked"
	CodeDstInUse              Code = "dst_in_use"
	CodeSameLocation          Code = "same_location"
	CodeChainChanged          Code = "chain_changed"
	CodeCopyNotVerified       Code = "copy_not_verified"
	CodePastPointOfNoReturn   Code = "past_point_of_no_return"
	CodeStaleEpoch            Code = "stale_epoch"
	CodeStaleGeneration       Code = "stale_generation"
	CodeInUseRetype           Code = "in_use_retype"
	CodeUnsupportedDisk       Code = "unsupported_disk"
	CodeSizeMismatch          Code = "size_mismatch"
	CodeCopyMismatch          Code = "copy_mismatch"
	CodeBitmapLost            Code = "bitmap_lost"
	CodePauseTooLong          Code = "pause_too_long"
	CodeIdempotencyMismatch   Code = "idempotency_mismatch"
	CodeNoCapablePool         Code = "no_capable_pool"
	CodeNoSpace               Code = "no_space"
	CodeIOError               Code = "io_error"
	CodeRegistryUnavailable   Code = "registry_unavailable"
	CodeHypervisorUnavailable Code = "hypervisor_unavailable"
	CodeJournalUnavailable    Code = "journal_unavailable"
	CodeNeedsOperator         Code = "needs_operator"
	CodeInternal              Code = "internal"
)

// Exit codes of volferryctl (public contract).
const (
	ExitDone          = 0
	ExitInternal      = 1
	ExitUsage         = 2
	ExitNotFound      = 3
	ExitRefused       = 4
	ExitUnavailable   = 5
	ExitOpFailed      = 6
	ExitNeedsOperator = 7
)

type codeInfo struct {
	http int
	exit int
}

var codes = map[Code]codeInfo{
	CodeInvalidArgument:       {http.StatusBadRequest, ExitUsage},
	CodePermissionDenied:      {http.StatusForbidden, ExitRefused},
	CodePolicyDenied:          {http.StatusForbidden, ExitRefused},
	CodeNotYourHost:           {http.StatusForbidden, ExitRefused},
	CodeRootDetachForbidden:   {http.StatusForbidden, ExitRefused},
	CodeRootAttachForbidden:   {http.StatusForbidden, ExitRefused},
	CodeRootVolumeMissing:     {http.StatusForbidden, ExitRefused},
	CodeNotFound:              {http.StatusNotFound, ExitNotFound},
	CodeConflict:              {http.StatusConflict, ExitRefused},
	CodeVolumeInUse:           {http.StatusConflict, ExitRefused},
	CodeVolumeNotAvailable:    {http.StatusConflict, ExitRefused},
	CodeMultiattached:         {http.StatusConflict, ExitRefused},
	CodeMigrationActive:       {http.StatusConflict, ExitRefused},
	CodeNoMigration:           {http.StatusConflict, ExitRefused},
	CodeStateForbidden:        {http.StatusConflict, ExitRefused},
	CodeInstanceBusy:          {http.StatusConflict, ExitRefused},
	CodeInstanceLocked:        {http.StatusConflict, ExitRefused},
	CodeDstInUse:              {http.StatusConflict, ExitRefused},
	CodeSameLocation:          {http.StatusConflict, ExitRefused},
	CodeChainChanged:          {http.StatusConflict, ExitRefused},
	CodeCopyNotVerified:       {http.StatusConflict, ExitRefused},
	CodePastPointOfNoReturn:   {http.StatusConflict, ExitRefused},
	CodeStaleEpoch:            {http.StatusConflict, ExitRefused},
	CodeStaleGeneration:       {http.StatusConflict, ExitRefused},
	CodeInUseRetype:           {http.StatusConflict, ExitRefused},
	CodeUnsupportedDisk:       {http.StatusUnprocessableEntity, ExitRefused},
	CodeSizeMismatch:          {http.StatusUnprocessableEntity, ExitRefused},
	CodeCopyMismatch:          {http.StatusUnprocessableEntity, ExitRefused},
	CodeBitmapLost:            {http.StatusConflict, ExitRefused},
	CodePauseTooLong:          {http.StatusUnprocessableEntity, ExitRefused},
	CodeIdempotencyMismatch:   {http.StatusUnprocessableEntity, ExitRefused},
	CodeNoCapablePool:         {http.StatusUnprocessableEntity, ExitRefused},
	CodeNoSpace:               {http.StatusInsufficientStorage, ExitRefused},
	CodeIOError:               {http.StatusInternalServerError, ExitOpFailed},
	CodeRegistryUnavailable:   {http.StatusServiceUnavailable, ExitUnavailable},
	CodeHypervisorUnavailable: {http.StatusServiceUnavailable, ExitUnavailable},
	CodeJournalUnavailable:    {http.StatusServiceUnavailable, ExitUnavailable},
	CodeNeedsOperator:         {http.StatusInternalServerError, ExitNeedsOperator},
	CodeInternal:              {http.StatusInternalServerError, ExitInternal},
}

// Codes returns every code, in no order.
func Codes() []Code {
	out := make([]Code, 0, len(codes))
	for c := range codes {
		out = append(out, c)
	}
	return out
}

// HTTPStatus returns the HTTP status of an answer with this code, 500 for an unknown code.
func (c Code) HTTPStatus() int {
	if i, ok := codes[c]; ok {
		return i.http
	}
	return http.StatusInternalServerError
}

// ExitStatus returns the exit status of volferryctl for this code, 1 for an unknown code.
func (c Code) ExitStatus() int {
	if i, ok := codes[c]; ok {
		return i.exit
	}
	return ExitInternal
}

// DetailRegistry is a detail of a daemon's refusal of a request that only the registry serves: the
// registry's address, in the form of --socket.
const DetailRegistry = "registry"

// DetailWrittenUnknown is a detail of the refusal to delete a released source while it is unknown
// whether a program has written to it: the source's path. Force deletes the source.
const DetailWrittenUnknown = "written_unknown"

// DetailOverwrites is a detail of dst_in_use: the path of an existing file, which
// MigrationTarget.Overwrite would overwrite.
const DetailOverwrites = "overwrites"

// DetailCure is a detail of the error of a migration or op that needs an operator: the commands
// that solve the problem, in order.
const DetailCure = "cure"

// CureSeparator separates the commands of DetailCure.
const CureSeparator = ", then "

// Error is the error of an API answer. Message is a whole sentence: the thing, its problem and, if
// possible, the next action.
type Error struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// Error returns the message, without the code.
func (e *Error) Error() string { return e.Message }

// With adds a detail to e and returns e.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = value
	return e
}

// Errorf returns a new Error. The format takes no %w, since an API answer has no chain of errors.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AsError returns the Error in err, and nil for nil. Any other err is a bug of Volferry, and
// becomes an Error with CodeInternal.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: "internal error: " + err.Error()}
}

// CodeOf returns the code of AsError(err), and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// ErrorBody is the JSON document of every error answer.
type ErrorBody struct {
	Error *Error `json:"error"`
}

func invalid(format string, args ...any) error { return Errorf(CodeInvalidArgument, format, args...) }
