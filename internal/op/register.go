// SPDX-License-Identifier: Apache-2.0

package op

import "fmt"

// Register makes op kinds known to the runner. It comes before Resume, which finds ops of
// all kinds in the journal. It panics if a plan is not valid or its kind is known already:
// plans are part of the program.
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

// Kinds returns the op kinds that the runner knows, in the order in which they were
// registered.
func (r *Runner) Kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.kinds...)
}

// OnChange has f called after every record, and when a wait begins or ends. No lock is
// held: f may call all methods but Stop. The op goes on when all such functions have
// returned; they are called in the order in which they were registered.
func (r *Runner) OnChange(f func(opID string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = append(r.onChange, f)
}

// OnFinished has f called once for every op that this runner brings to its end, after the
// end was recorded, without any lock held. It is not called for ops that had ended before.
// A crash between the record and the call loses the call.
func (r *Runner) OnFinished(f func(Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onFinished = append(r.onFinished, f)
}
