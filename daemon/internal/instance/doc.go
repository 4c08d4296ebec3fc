// SPDX-License-Identifier: Apache-2.0

// Package instance does the work on whole guests: it starts, stops, shelves, unshelves and saves
// them for the API, adopts existing domains, and compares domains with the registry.
//
// Package steps changes the domains. The manager here admits requests and reads their results; it
// changes no domain itself. Neither package knows how migrations and attachments are made, or SQL.
// DESIGN.md of this directory has every interruption.
package instance
