// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
)

// moveStopped moves the volume while the guest is off, and boots the guest from
// where it is then.
func moveStopped(ctx context.Context, s *stage) (result, error) {
	r := result{title: "3. stopped", pool: "old"}
	s.heading("3. Move the volume of a stopped guest")
	s.say("The guest turns itself off in the middle of its writes.")
	if err := s.guest.Write(disk, load); err != nil {
		return r, err
	}
	if err := s.guest.WaitWriting(ctx, disk, 500); err != nil {
		return r, err
	}
	if err := s.guest.PowerOff(ctx); err != nil {
		return r, err
	}
	s.say("This time the source is deleted, once the copy has been compared with it.")
	if err := s.ctl(ctx, "volume", "migrate", volumeName, "--to-pool", r.pool, "--delete-source"); err != nil {
		return r, err
	}
	var err error
	if r.migration, err = s.lastMigration(ctx); err != nil {
		return r, err
	}
	s.say("\nBooting the guest with the moved volume. It goes on writing.")
	if err := s.guest.Start(ctx); err != nil {
		return r, err
	}
	disks, err := s.guest.Disks(ctx)
	if err != nil {
		return r, err
	}
	if len(disks) != 1 || disks[0].Name != disk || disks[0].Serial != serial {
		return r, fmt.Errorf("the guest sees other disks than before: %+v", disks)
	}
	if err := s.guest.WaitWriting(ctx, disk, 500); err != nil {
		return r, err
	}
	return r, s.verify(ctx, &r)
}
