// SPDX-License-Identifier: Apache-2.0

package move

import (
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// WorldChangedError ends an op because the state of the host has changed: the guest is on or off
// contrary to the plan, or a block job ended early. The op is undone, and the manager plans again.
type WorldChangedError struct{ What string }

func (e *WorldChangedError) Error() string { return e.What }

// Failure returns the journal's form of the error.
func (e *WorldChangedError) Failure() op.Failure {
	return op.Failure{Code: string(CodeWorldChanged), Message: e.What}
}

// CodeWorldChanged is the journal's code of WorldChangedError. It never leaves the daemon.
const CodeWorldChanged api.Code = "world_changed"

// AbandonedError ends an op because the registry has ended its migration: an operator abandoned
// the migration while this host was fenced. Nothing is undone, since src and dst may belong to
// other volumes. kept means that src still belongs to the instance.
type AbandonedError struct {
	why  *api.Error
	kept bool
}

func (e *AbandonedError) Error() string { return e.why.Message }

// Failure returns the journal's form of the error.
func (e *AbandonedError) Failure() op.Failure {
	code := codeAbandoned
	if e.kept {
		code = codeAbandonedKept
	}
	return op.Failure{Code: string(code), Message: e.why.Message, Details: e.why.Details}
}

// The journal's codes of AbandonedError, which never leave the daemon.
const (
	codeAbandoned     api.Code = "abandoned"
	codeAbandonedKept api.Code = "abandoned_kept"
)

// HVError gives an error of the hypervisor the type that decides whether the runner retries, waits
// or gives up.
func (e *Env) HVError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hv.ErrUnavailable):
		return request.AwaitHypervisor(err)
	case errors.Is(err, hv.ErrBusy), errors.Is(err, hv.ErrNotReady):
		return op.Retry(request.BusyDelay, err)
	case errors.Is(err, hv.ErrNotActive):
		return &WorldChangedError{What: "the instance is not running any more"}
	case errors.Is(err, hv.ErrNotFound):
		// The domain was undefined during the migration: the chain of its disk is unknown.
		return op.UnknownOutcome(err)
	}
	return err
}

// RegistryError types an error of the registry for the runner. A fenced host waits until it has
// rejoined, as for an unavailable registry.
func (e *Env) RegistryError(err error) error {
	switch api.CodeOf(err) {
	case api.CodeRegistryUnavailable:
		return op.WaitFor(request.WaitRegistry, err)
	case api.CodeStaleEpoch:
		e.fence.Raise(EpochIn(err))
		return op.WaitFor(request.WaitRegistry, err)
	default:
		return err
	}
}

// APIError converts a failure in the journal into an error of the API; nil for nil.
func APIError(f *op.Failure) *api.Error {
	out := request.APIError(f)
	switch {
	case out == nil:
	case out.Code == CodeWorldChanged:
		out.Code = api.CodeInstanceBusy
	case out.Code == codeAbandoned, out.Code == codeAbandonedKept:
		out.Code = api.CodeNoMigration
	}
	return out
}

// Overtaken reports whether an op has to be planned again: the state of the host changed, or the
// journal accepted no record while the guest was paused.
func Overtaken(f *op.Failure) bool {
	return f != nil && (f.Code == string(CodeWorldChanged) || f.Code == string(api.CodeJournalUnavailable))
}

// Abandoned reports whether an op was undone by an AbandonedError, and whether src then still
// belonged to the instance.
func Abandoned(f *op.Failure) (is, kept bool) {
	if f == nil {
		return false, false
	}
	kept = f.Code == string(codeAbandonedKept)
	return kept || f.Code == string(codeAbandoned), kept
}

// CannotLookAt returns the refusal for an instance with an unknown state.
func CannotLookAt(s *Spec, err error) *api.Error {
	return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v; nothing was changed", s.InstanceName, err)
}

// NotEnded returns an error that makes a step look again, because the block job has not ended.
func NotEnded(s *Spec) error {
	return op.Retry(JobPoll, api.Errorf(api.CodeInstanceBusy, "the block job on %s has not ended yet", s.Target))
}

// SizeMismatch returns the refusal of a dst with another size than src.
func SizeMismatch(src string, srcBytes int64, dst string, dstBytes int64) *api.Error {
	word, by := "larger", dstBytes-srcBytes
	if by < 0 {
		word, by = "smaller", -by
	}
	return api.Errorf(api.CodeSizeMismatch,
		"destination %s (%d bytes) is %d bytes %s than %s (%d bytes); a destination has the size of its volume to the byte, or is raw and larger",
		dst, dstBytes, by, word, src, srcBytes).
		With("src_size_bytes", srcBytes).With("dst_size_bytes", dstBytes)
}
