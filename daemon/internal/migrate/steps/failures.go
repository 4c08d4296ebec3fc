// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// errWorldChanged ends an op because the world has changed under it: the op was planned for
// a running guest and the guest is off, or the other way round, or a block job ended before
// its time. The op is undone and the manager plans again.
type errWorldChanged struct{ what string }

func (e *errWorldChanged) Error() string { return e.what }

// Failure returns the error as the journal keeps it.
func (e *errWorldChanged) Failure() op.Failure {
	return op.Failure{Code: string(CodeWorldChanged), Message: e.what}
}

// CodeWorldChanged is the code of errWorldChanged in the journal. It never leaves the
// daemon.
const CodeWorldChanged api.Code = "world_changed"

// errAbandoned ends an op because the registry has ended its migration: an operator gave
// the migration up while this host was fenced. Src and dst may belong to others by now, so
// nothing is undone. Kept says that src is still the instance's.
type errAbandoned struct {
	why  *api.Error
	kept bool
}

func (e *errAbandoned) Error() string { return e.why.Message }

// Failure is what the journal keeps of it.
func (e *errAbandoned) Failure() op.Failure {
	code := codeAbandoned
	if e.kept {
		code = codeAbandonedKept
	}
	return op.Failure{Code: string(code), Message: e.why.Message, Details: e.why.Details}
}

// codeAbandoned and codeAbandonedKept are the codes of errAbandoned in the journal. They
// never leave the daemon.
const (
	codeAbandoned     api.Code = "abandoned"
	codeAbandonedKept api.Code = "abandoned_kept"
)

// hvError gives an error of the hypervisor the type that tells the runner what
// to do.
func (e *Env) hvError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hv.ErrUnavailable):
		return request.AwaitHypervisor(err)
	case errors.Is(err, hv.ErrBusy), errors.Is(err, hv.ErrNotReady):
		return op.Retry(request.BusyDelay, err)
	case errors.Is(err, hv.ErrNotActive):
		return &errWorldChanged{"the instance is not running any more"}
	case errors.Is(err, hv.ErrNotFound):
		// A domain that was undefined under an open migration: its disk's chain
		// is not known any more.
		return op.UnknownOutcome(err)
	}
	return err
}

// registryError is hvError for an error of the registry. A host that was fenced waits until
// it has rejoined, as for a registry that is away.
func (e *Env) registryError(err error) error {
	switch api.CodeOf(err) {
	case api.CodeRegistryUnavailable:
		return op.WaitFor(request.WaitRegistry, err)
	case api.CodeStaleEpoch:
		e.fence.raise(epochIn(err))
		return op.WaitFor(request.WaitRegistry, err)
	default:
		return err
	}
}

// APIError turns a failure in the journal into an error of the API, nil for nil.
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

// Overtaken reports whether an op was undone because the world had changed meanwhile, or because
// the journal took no record while the guest was paused, so that it has to be planned again.
func Overtaken(f *op.Failure) bool {
	return f != nil && (f.Code == string(CodeWorldChanged) || f.Code == string(api.CodeJournalUnavailable))
}

// Abandoned reports whether an op was undone because the registry had ended its migration, and
// kept whether src then still belonged to the instance.
func Abandoned(f *op.Failure) (is, kept bool) {
	if f == nil {
		return false, false
	}
	kept = f.Code == string(codeAbandonedKept)
	return kept || f.Code == string(codeAbandoned), kept
}

// CannotLookAt returns the refusal if the hypervisor does not say how the instance is.
func CannotLookAt(s *Spec, err error) *api.Error {
	return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v; nothing was changed", s.InstanceName, err)
}

func notEnded(s *Spec) error {
	return op.Retry(jobPoll, api.Errorf(api.CodeInstanceBusy, "the block job on %s has not ended yet", s.Target))
}
