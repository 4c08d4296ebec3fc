// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// Site has the registry's calls for this host's operations. Changes have the present epoch. While
// this host is fenced, Site sends no change, and returns registry_unavailable, so that operations
// wait. It stores a granted attachment before the disk can be connected, so that a fence finds the
// disk.
type Site struct {
	*client.Registry
	up *Uplink
}

// Site returns a Site that calls the registry through r.
func (u *Uplink) Site(r *client.Registry) *Site {
	return &Site{Registry: r.ChangesThrough(u.sendFenced), up: u}
}

// sendFenced calls send to send a change, unless this host is fenced. If the registry was just
// started and first needs a report of this host or its pools, sendFenced reports, and calls send
// again. If the report fails or lacks the pools, the returned error makes the operation wait.
func (u *Uplink) sendFenced(ctx context.Context, send func() error) error {
	if err := u.Admit(); err != nil {
		return waiting(err)
	}
	_, epoch := u.Token()
	err := send()
	var unsaid error
	if reportFirst(err) {
		var out reportResult
		if out, unsaid = u.refresh(ctx); unsaid == nil {
			unsaid = out.noPools
			_, epoch = u.Token()
			err = send()
		}
	}
	switch {
	case err == nil:
		return nil
	case reportFirst(err) && unsaid != nil:
		u.Changed()
		return waiting(fmt.Errorf("%w (this host could not say better: %w)", err, unsaid))
	}
	if err = u.refused(epoch, false, err); u.Admit() != nil {
		return waiting(err)
	}
	return err
}

// waiting turns err into an error that makes the operation wait for the registry.
func waiting(err error) error {
	return api.Errorf(api.CodeRegistryUnavailable, "%v", err)
}

// RegisterInstance calls client.Registry, and stores the grants.
func (s *Site) RegisterInstance(ctx context.Context, opID string, in api.InstanceRegister) (api.Instance, error) {
	inst, err := s.Registry.RegisterInstance(ctx, opID, in)
	if err != nil {
		return inst, err
	}
	granted := make([]api.Attachment, 0, len(in.Disks))
	for i := range in.Disks {
		granted = append(granted, in.Disks[i].Attachment(&in))
	}
	return inst, s.up.grant(granted...)
}

// ReserveAttachment calls client.Registry, and stores the grant.
func (s *Site) ReserveAttachment(ctx context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error) {
	a, err := s.Registry.ReserveAttachment(ctx, opID, in)
	if err != nil {
		return a, err
	}
	return a, s.up.grant(a)
}

// Attachment reads an attachment. A resumed operation reads its grant here, so Attachment stores a
// grant that a dead daemon did not store.
func (s *Site) Attachment(ctx context.Context, ref string) (api.Attachment, error) {
	a, err := s.Registry.Attachment(ctx, ref)
	if err != nil || !s.up.ours(a.Host) {
		return a, err
	}
	return a, s.up.grantFound(a)
}

// Attachments reads attachments, and stores them as grants: in a move with all guests paused the
// restoring host reads the new location here.
func (s *Site) Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error) {
	all, err := s.Registry.Attachments(ctx, volume, instance)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if !s.up.ours(a.Host) {
			continue
		}
		if err := s.up.grantFound(a); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// RegisterMigration calls client.Registry, and stores the grant of the destination.
func (s *Site) RegisterMigration(ctx context.Context, opID string, in api.MigrationRegister) (api.Migration, error) {
	m, err := s.Registry.RegisterMigration(ctx, opID, in)
	if err != nil {
		return m, err
	}
	return m, s.grantDst(m)
}

// Migration reads a migration, and stores the grant of an open migration's destination.
func (s *Site) Migration(ctx context.Context, ref string) (api.Migration, error) {
	m, err := s.Registry.Migration(ctx, ref)
	if err != nil || m.State.Final() || m.DstAttachmentID == "" || !s.up.ours(m.Host) {
		return m, err
	}
	return m, s.up.grantFound(s.dstOf(m))
}

// TransitionMigration calls client.Registry, and stores the grant of the destination.
func (s *Site) TransitionMigration(ctx context.Context, opID, ref string, in api.MigrationTransition) (api.Migration, error) {
	m, err := s.Registry.TransitionMigration(ctx, opID, ref, in)
	if err != nil || in.Dst == nil {
		return m, err
	}
	return m, s.grantDst(m)
}

// grantDst stores that the instance may use the migration's dst: the guest uses dst before the
// registry has recorded that.
func (s *Site) grantDst(m api.Migration) error {
	if m.DstAttachmentID == "" {
		return nil
	}
	return s.up.grant(s.dstOf(m))
}

func (s *Site) dstOf(m api.Migration) api.Attachment {
	return api.Attachment{
		ID: m.DstAttachmentID, VolumeID: m.VolumeID, InstanceID: m.InstanceID, Host: s.up.cfg.HostID,
		State: api.AttachmentReserved, Location: m.Dst,
	}
}
