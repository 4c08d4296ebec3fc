// SPDX-License-Identifier: Apache-2.0

// Package pools presents pools of connectors as pools of the hypervisor. It checks a connector's
// answers against the kernel before other packages see them. It must not know the storage of a
// connector. DESIGN.md of package connector describes every interruption.
package pools
