// SPDX-License-Identifier: Apache-2.0

// Package op runs durable operations: an op is an ordered list of steps with a
// commit point, and it ends either with every step done or with every step
// undone, whatever dies in between. It knows nothing of volumes or libvirt and
// imports the standard library only.
//
// # Words
//
// An op is made of steps. A step has Do, Undo and Observe. What happens is
// written to a journal as records; a record is on stable storage before the
// effect that it announces. The state of an op is never stored but computed
// from its records by Next and Replay, which run and recovery share.
//
// # Rules
//
//   - Journal, act, observe, journal. What Observe says counts, not what Do
//     returned.
//   - A journal that does not take a record stops the op where it is. A critical section, in
//     which a guest is paused, is left after a second (leave.go).
//   - After a crash a step that was started is observed first. Done: go on. Not
//     done: do it again. Unknown: stop, keep everything, call the operator.
//   - Before the commit point a permanent error undoes backwards, beginning
//     with the step that failed. After it there is only forward.
//   - A halt stops ops as a crash does, but for those in a critical section: a guest
//     that is paused must not stay so until the ops go on.
//   - Shutdown is not failure: it leaves no record, and the next start resumes.
//   - A step name that the plan does not have, or a record that cannot follow
//     the one before it, stops the op for the operator. Nothing is skipped.
//   - Ops that share a key run one after the other in the order of creation. What is
//     no op, and may not come in between, takes their key itself (TryLock).
//
// # Proof
//
// Package optest runs every plan through the same matrix: each step run twice,
// each step failed, undo twice, the journal cut after every record, and a crash
// at every fault point. An op kind without the matrix is not done.
package op
