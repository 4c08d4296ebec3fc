// SPDX-License-Identifier: Apache-2.0

// Package libvirthook has the text of the libvirt hook, as the packages install it.
package libvirthook

import _ "embed"

// Script is the hook volferry-guard.
//
//go:embed volferry-guard
var Script []byte
