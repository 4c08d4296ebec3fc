// SPDX-License-Identifier: Apache-2.0

// Package request makes one durable op of a request under an op id, however often the request is
// sent, and answers the caller if the op is refused. It defines the keys of all managers' ops, and
// the names of the things that ops wait for.
package request
