// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/internal/api"
)

// Memory returns the largest possible size of an instance's save image, and the free space for
// save images.
func (m *Manager) Memory(ctx context.Context, instanceRef string) (api.PausedInstance, error) {
	e := m.env
	inst, err := e.Subject.FindInstance(ctx, instanceRef)
	if err != nil {
		return api.PausedInstance{}, err
	}
	s, err := e.Subject.SubjectOf(ctx, inst)
	if err != nil {
		return api.PausedInstance{}, err
	}
	dom, err := m.ports.Domains.Domain(ctx, inst.ID)
	if errors.Is(err, hv.ErrNotFound) {
		return api.PausedInstance{}, api.Errorf(api.CodeNotFound, "instance %s is not defined on this host", inst.Name)
	}
	if err != nil {
		return api.PausedInstance{}, api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v", inst.Name, err)
	}
	free, err := e.Subject.FreeBytes()
	if err != nil {
		return api.PausedInstance{}, fmt.Errorf("look at the directory for saved memory: %w", err)
	}
	inMemory, err := e.Subject.SavesInMemory()
	if err != nil {
		return api.PausedInstance{}, fmt.Errorf("look at the directory for saved memory: %w", err)
	}
	return api.PausedInstance{
		InstanceID: inst.ID, InstanceName: inst.Name, Host: s.HostName, State: StateOf(dom),
		MemoryBytes: memory.Bytes(dom), FreeBytes: free, SavedInMemory: inMemory,
	}, nil
}
