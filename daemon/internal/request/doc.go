// SPDX-License-Identifier: Apache-2.0

// Package request turns a request under an op id into one durable op, however often it is sent, and
// answers the caller with a refusal. It defines, for all managers, the ops' keys and the names of
// the things that they wait for. It does not know the ops' work.
package request
