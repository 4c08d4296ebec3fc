// SPDX-License-Identifier: Apache-2.0

package api

// RegistryMark is a position in the registry's history. Hosts keep their newest mark and report
// it: a registry that does not know the mark was restored from a backup.
type RegistryMark struct {
	// RegistryID identifies the database; Timeline counts the restores that an operator accepted.
	RegistryID string `json:"registry_id"`
	Timeline   int64  `json:"timeline"`
	// Seq and Hash identify the newest event of the audit trail.
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
	// Signature is made with a key that only the registry has, so that no host can forge a mark.
	// It is "" in marks of older registries, which do not sign marks.
	Signature string `json:"signature,omitempty"`
}
