// SPDX-License-Identifier: Apache-2.0

// Package migrate has the manager of the migrations of this host: what the API calls. It
// admits a migration after every check that can be made before anything is touched, chooses
// the plan of each op, brings a migration from one op to the next, watches the guests of
// open migrations, and computes from the journal how far a migration is.
//
// Package steps does to the host what an op needs. The two are separate because they change
// for different reasons: the manager with what the API promises, a step with what QEMU and
// libvirt do. The manager starts ops and reads their outcome; it changes nothing of a disk
// itself, and must not know how a step works. DESIGN.md beside this file has the
// definitions, the phases, every interruption and what holds after it.
package migrate
