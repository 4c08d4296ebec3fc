// SPDX-License-Identifier: Apache-2.0

// Package migratetest is a host in memory for tests that move a volume: one instance on the fake
// hypervisor, and stateful fakes of the other ports. It knows neither plans nor the manager.
package migratetest
