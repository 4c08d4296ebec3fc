// SPDX-License-Identifier: Apache-2.0

// Package treetest holds tests about the source tree itself: what a linter
// cannot say because it sees one package at a time, or no Go at all. It has no
// code of its own and is imported by nobody.
package treetest
