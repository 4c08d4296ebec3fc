// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
)

// Mark returns how far the registry's history is.
func (s *Store) Mark(ctx context.Context) (api.RegistryMark, error) {
	return api.RegistryMark{}, errSkeleton()
}

// ObserveMark compares a mark that a host shows with the registry's history. A
// mark that this history cannot have given out proves that the database was
// restored from a backup, and makes the store read-only.
func (s *Store) ObserveMark(ctx context.Context, hostID, name string, m api.RegistryMark) error {
	return nil
}

// ReadOnly says whether the store takes no changes because it was found to be
// older than what hosts were told, and if so why and what to do. This is kept in
// memory alone: after a restart the next report of such a host finds it again.
func (s *Store) ReadOnly() (reason string, yes bool) { return "", false }

// AcceptRestore takes an operator's word that the registry was compared with the
// hosts, and starts a new timeline: marks of older ones prove nothing any more.
// It is the one change that a read-only store takes.
func (s *Store) AcceptRestore(ctx context.Context, call Call, evidence string) (api.RegistryMark, error) {
	return api.RegistryMark{}, errSkeleton()
}
