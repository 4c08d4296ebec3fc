// SPDX-License-Identifier: Apache-2.0

// Package request turns a request under an op id into one durable op, however often the request is
// sent, and answers the caller if the request is refused. It defines the ops' keys and the names of
// the things that they wait for, for all managers. It does not know the ops' work.
package request
