// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/server"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func TestTheRegistryServesTheRoutesThatAreDeclaredForItAndNoOther(t *testing.T) {
	var declared, served []string
	for _, d := range routes.All() {
		if d.Registry != nil {
			declared = append(declared, d.String())
		}
	}
	for _, r := range server.New(server.Config{Store: &workflow.Store{Store: new(store.Store)}}).Routes() {
		served = append(served, r.Method+" "+r.Path)
	}
	slices.Sort(declared)
	slices.Sort(served)
	if diff := cmp.Diff(declared, served); diff != "" {
		t.Errorf("routes (-declared +served):\n%s", diff)
	}
}
