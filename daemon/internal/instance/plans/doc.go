// SPDX-License-Identifier: Apache-2.0

// Package plans has the plans of all op kinds of instances (plans.go), made of the steps of the
// packages next to it. DESIGN.md of package instance has every interruption.
//
// Each package may call those below it:
//
//	plans
//	shelf, repair
//	power
//	memory
//	subject
package plans
