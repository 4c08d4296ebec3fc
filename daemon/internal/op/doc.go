// SPDX-License-Identifier: Apache-2.0

// Package op runs durable operations. An op is an ordered list of steps with a commit point. It
// ends with every step done or with every step undone, even if the process or the machine dies in
// between. The package knows nothing of volumes or libvirt and imports the standard library only.
//
// # Words
//
// The journal keeps events as records; a record is on stable storage before the effect that it
// announces. The state of an op is never stored: Next and Replay compute it from the records, when
// an op runs and after a crash.
//
// # Rules
//
//   - Journal, act, observe, journal. The answer of Observe decides, not the result of Do.
//   - A journal that refuses a record stops the op where it is. Only a critical section does not
//     wait: its guest is paused, so the op leaves the section after a second (leave.go).
//   - After a crash a step that was started is observed first. Done: go on. Not done: do it again.
//     Unknown: stop, keep everything, call the operator.
//   - Before the commit point a permanent error undoes the steps in reverse order, beginning with
//     the failed step. After the commit point the op only goes forward.
//   - A halt stops ops as a crash does, except in a critical section: a guest must not stay paused
//     until the ops go on.
//   - A shutdown is no failure: it leaves no record, and the next start resumes.
//   - A step that the plan does not have, or a record that cannot follow the previous one, stops
//     the op for the operator. Nothing is skipped.
//   - Ops that share a key run one after the other, in the order of creation. Other work that must
//     not run at the same time takes the key itself (TryLock).
//
// # Proof
//
// Package optest runs every plan through one matrix of failures and crashes. An op kind without
// the matrix is not complete.
package op
