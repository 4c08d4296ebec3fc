// SPDX-License-Identifier: Apache-2.0

// Package instance does what Volferry does to whole guests rather than to one disk: what
// the API calls to start and stop them, put them on the shelf and bring them back, and save
// them with their RAM. It adopts existing domains, and says how a domain differs from what
// the registry has of it.
//
// Package steps does to a domain what an op needs. The manager here admits requests and
// reads what became of them; it changes no domain itself. Neither package knows how a
// migration or an attach is made, or SQL. DESIGN.md beside this file has every
// interruption.
package instance
