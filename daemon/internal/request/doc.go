// SPDX-License-Identifier: Apache-2.0

// Package request turns what a caller asks for under an op id into a durable op:
// once, however often he asks, and with a refusal as the answer where there is
// one. It owns what the ops of all managers share: their keys, and what they wait
// for. It must not know what the ops do.
package request
