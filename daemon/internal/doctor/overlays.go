// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

func (d *Doctor) overlays(ctx context.Context) api.Check {
	const name = "overlays"
	if err := d.Cfg.CheckOverlayDir(); err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "set overlay_dir to a directory on disk"}
	}
	free, err := d.Storage.FreeBytes(d.Cfg.Overlays())
	if err != nil {
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "make the directory, or set overlay_dir"}
	}
	limits, unasked := d.overlayQuotas(ctx)
	free = quota.Free(free, limits)
	message := fmt.Sprintf("%s has %s free for the guests' writes while their volumes move%s", d.Cfg.Overlays(), humanize.Bytes(free), d.largest())
	switch i := slices.IndexFunc(limits, func(l quota.Limit) bool { return !l.AsFull }); {
	case unasked != nil:
		return api.Check{Name: name, Status: "warn", Message: fmt.Sprintf("%s; its quotas cannot be read: %v", message, unasked)}
	case i >= 0:
		return underQuota(message, limits[i])
	case free < d.Cfg.OverlayMinFreeBytes:
		return api.Check{Name: name, Status: "warn", Message: message, Advice: "free some space, or set overlay_dir to a directory on a larger filesystem"}
	}
	return ok(name, message)
}

// underQuota warns about a quota on overlays: when the quota is full, a guest gets I/O errors,
// unless error_policy='stop' makes QEMU pause it.
func underQuota(message string, l quota.Limit) api.Check {
	who := fmt.Sprintf("%s %d", l.Kind, l.ID)
	if l.Kind == quota.User {
		who = "user " + image.UserName(hv.ProcessUser{UID: l.ID})
	}
	return api.Check{
		Name: "overlays", Status: "warn",
		Message: fmt.Sprintf("%s; overlays count against the quota of %s (%s, %s used). When the quota is full, a guest gets an I/O error, unless its disk has error_policy='stop': all other disks are moved by a mirror, without an overlay",
			message, who, humanize.Bytes(l.Bytes), humanize.Bytes(l.UsedBytes)),
		Advice: "set overlay_dir to a directory without a quota, or remove the quota (docs/how-to/check-a-host.md, An overlay directory under a quota)",
	}
}

func (d *Doctor) overlayQuotas(ctx context.Context) ([]quota.Limit, error) {
	owner, _, err := hv.ConfinedUser(ctx, d.HV, "")
	if errors.Is(err, hv.ErrUnavailable) {
		return nil, nil // libvirt has its own check
	}
	if err != nil {
		return nil, err
	}
	return d.Storage.Quotas(ctx, d.Cfg.Overlays(), owner)
}

func (d *Doctor) largest() string {
	var largest api.Volume
	for _, vol := range d.Uplink.AttachedHere() {
		if vol.SizeBytes > largest.SizeBytes {
			largest = vol
		}
	}
	if largest.ID == "" {
		return ""
	}
	return fmt.Sprintf("; an overlay may get as large as its volume, %s for the largest here (%s)", humanize.Bytes(largest.SizeBytes), largest.Name)
}
