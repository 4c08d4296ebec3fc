// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/registry/internal/workflow"
)

const databaseProbe = "database"

func healthOf(db *workflow.Store) *service.Health {
	changes := func() error {
		if reason, readOnly := db.ReadOnly(); readOnly {
			return errors.New("read-only: " + reason)
		}
		return nil
	}
	return service.NewHealth([]service.Probe{{Name: databaseProbe, Try: db.Probe, Vital: true}}, service.Condition{Name: "changes", Err: changes})
}
