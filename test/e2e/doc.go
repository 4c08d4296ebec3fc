// SPDX-License-Identifier: Apache-2.0

// Package e2e claims what Volferry promises to its users, on real guests and
// through volferryctl alone. It runs the programs in bin/ on a lab and must not
// know anything that a user could not: command lines, exit codes, JSON, and
// what can be seen of the host from outside.
package e2e
