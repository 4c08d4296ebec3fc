// SPDX-License-Identifier: Apache-2.0

// Package request turns a request under an op id into a durable op: exactly one, however
// often the request is sent, and the caller gets a refusal as the answer. It has what the
// ops of all managers share: their keys, and what they wait for. It must not know what the
// ops do.
package request
