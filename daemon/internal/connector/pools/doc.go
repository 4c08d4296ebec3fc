// SPDX-License-Identifier: Apache-2.0

// Package pools presents pools of connectors as pools of the hypervisor. It checks a connector's
// answers against the kernel. DESIGN.md of package connector describes every interruption.
package pools
