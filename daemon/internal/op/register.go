// SPDX-License-Identifier: Apache-2.0

package op

import "fmt"

// Register adds op kinds to the runner. Call it before Resume, which needs the kinds of all ops in
// the journal. It panics on an invalid plan and on a duplicate kind.
func (r *Runner) Register(plans ...Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range plans {
		if err := p.Validate(); err != nil {
			panic(err)
		}
		if r.plans[p.Kind] != nil {
			panic(fmt.Sprintf("two plans are of kind %s", p.Kind))
		}
		r.plans[p.Kind] = &p
		r.kinds = append(r.kinds, p.Kind)
	}
}

// Kinds returns the registered op kinds in the order of registration.
func (r *Runner) Kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.kinds...)
}

// OnChange registers f to be called after every record, and when a wait begins or ends. The op
// continues when all registered functions have returned, in the order of registration. f may call
// all methods except Stop.
func (r *Runner) OnChange(f func(opID string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = append(r.onChange, f)
}

// OnFinished registers f to be called once for every op that this runner finishes, after the
// finished record, without a lock. A crash between the record and the call loses the call.
func (r *Runner) OnFinished(f func(Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onFinished = append(r.onFinished, f)
}
