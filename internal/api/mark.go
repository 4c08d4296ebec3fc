// SPDX-License-Identifier: Apache-2.0

package api

// RegistryMark says how far the registry's history is. Hosts keep the newest
// that they were told, and show it with every report: a registry that does not
// know it any more was restored from a backup.
type RegistryMark struct {
	// RegistryID identifies the database; Timeline counts the restores that an operator
	// accepted.
	RegistryID string `json:"registry_id"`
	Timeline   int64  `json:"timeline"`
	// Seq and Hash are those of the newest event of the audit trail.
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
	// Signature is made with a key that only the registry has, so that no host can forge a
	// mark. It is "" in marks of registries that did not sign them yet.
	Signature string `json:"signature,omitempty"`
}
