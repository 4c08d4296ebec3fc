// SPDX-License-Identifier: Apache-2.0

// Package pools makes pools of connectors look like pools of the hypervisor, so that nobody
// else has to know which is which. What a connector says is checked here against the kernel
// before anybody believes it. It must not know what storage a connector is for. DESIGN.md of
// package connector has every interruption.
package pools
