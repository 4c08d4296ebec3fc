// SPDX-License-Identifier: Apache-2.0

// Package request turns a request under an op id into one durable op, however often it is sent,
// and answers the caller with a refusal. For all managers it defines the ops' keys and the names
// of the things that ops wait for. It does not know the ops' work.
package request
