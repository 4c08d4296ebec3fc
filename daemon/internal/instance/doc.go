// SPDX-License-Identifier: Apache-2.0

// Package instance owns what Volferry does about whole guests rather than one
// disk: what the API calls to start and stop them, put them on the shelf and bring
// them back, and save them with their RAM. It takes over domains that exist, and says how
// a domain differs from what the registry has of it.
//
// What an op does to a domain is package steps. The manager here admits requests and reads
// what became of them; it changes no domain itself. Neither knows how a migration or an
// attach is made, nor SQL. DESIGN.md beside this file has every interruption.
package instance
