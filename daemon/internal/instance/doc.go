// SPDX-License-Identifier: Apache-2.0

// Package instance works on whole guests: it starts, stops, shelves, unshelves and saves them for
// the API, adopts existing domains, and compares domains with the registry.
//
// The steps change the domains; the manager here only admits requests and reads results. DESIGN.md
// has every interruption.
package instance
