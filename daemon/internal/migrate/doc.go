// SPDX-License-Identifier: Apache-2.0

// Package migrate has the manager of this host's migrations, which the API calls. It admits
// migrations, chooses each op's plan, submits one op after the other, and shows migrations to
// callers. Its parts are packages in this directory. Each may call the packages below it:
//
//	parts, monitor
//	preflight
//	released
//	which
//	history
//
// Package plans, and the packages of the steps next to it, have the effects of the ops on the
// host. The manager starts ops and reads their results; it changes no disk, and must not know how a
// step works. DESIGN.md has the definitions, the phases and all interruptions.
package migrate
