// SPDX-License-Identifier: Apache-2.0

// Package registry holds the tests of volferry-registry as a program that dies
// and stands still: many clients over TLS, SIGKILL and SIGSTOP at any moment,
// databases from backups, full disks and damaged files. They call it as daemons
// and operators do and see the public surface only.
package registry
