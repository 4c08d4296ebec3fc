// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

// volumeInCare is OwnVolume for a change of what a volume is, by the host that has it in
// its care: that others reach the bytes lets them attach it, not rename or forget it.
// Another host deletes it where an operator has asked for that there.
func (tx *Tx) volumeInCare(ctx context.Context, ref, verb string) (api.Volume, error) {
	v, err := tx.OwnVolume(ctx, ref, verb)
	if err != nil || tx.host == nil || v.Host == tx.host.Name {
		return v, err
	}
	asked, err := tx.wasAsked(ctx, "method = 'DELETE' AND (path = ?2 OR substr(path, 1, length(?2) + 1) = ?2 || '?')", v.ID)
	if err != nil || asked {
		return v, err
	}
	return v, tx.notInCare(verb, v)
}

// volumeInHand is OwnVolume for a change of the bytes of a volume. While hosts have the volume at
// instances, it is for those of them whose attachment is past its reservation; while none has, for
// the host that has the volume in its care. In both cases it is for a host that was asked to do
// something to the volume and has not answered yet. To reach the bytes is not enough: every host
// that has the shared pool does.
func (tx *Tx) volumeInHand(ctx context.Context, ref, verb string) (api.Volume, error) {
	v, err := tx.OwnVolume(ctx, ref, verb)
	if err != nil || tx.host == nil || v.Unheld() && v.Host == tx.host.Name {
		return v, err
	}
	var has bool
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM attachments a JOIN instances i ON i.id = a.instance_id WHERE a.volume_id = ?2 AND a.state <> 'reserved' AND "+ownsInstance+")",
		tx.host.ID, v.ID).Scan(&has); err != nil {
		return v, fmt.Errorf("look up who has volume: %w", err)
	}
	if has {
		return v, nil
	}
	asked, err := tx.wasAsked(ctx, "substr(path, 1, length(?2) + 1) = ?2 || '/'", v.ID)
	if err != nil || asked {
		return v, err
	}
	return v, tx.notInHand(verb, v)
}

// volumeSeen is volumeInHand for the report of a host about the image of a volume. While another
// host has an instance with the volume, no host's report counts: that instance would get what
// another host made up. The advice is what an operator does then.
func (tx *Tx) volumeSeen(ctx context.Context, ref, verb string, advice func(api.Volume) string) (api.Volume, error) {
	v, err := tx.volumeInHand(ctx, ref, verb)
	if err != nil || tx.host == nil {
		return v, err
	}
	for _, a := range v.Attachments {
		if a.Host != "" && a.Host != tx.host.Name {
			return v, api.Errorf(api.CodeNotYourHost, "cannot %s volume %s: it is also at instance %s of host %s, and you are host %s; an operator can, at the registry: `%s`",
				verb, v.Name, a.InstanceName, a.Host, tx.host.Name, advice(v))
		}
	}
	return v, nil
}

// wasAsked reports whether the calling host has taken a task about a volume, and has not answered
// it. The condition is on the task; the path of the volume is ?2.
func (tx *Tx) wasAsked(ctx context.Context, condition, volumeID string) (asked bool, err error) {
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM tasks WHERE host_id = ?1 AND state = 'taken' AND "+condition+")",
		tx.host.ID, "/v1/volumes/"+volumeID).Scan(&asked); err != nil {
		return false, fmt.Errorf("look up task: %w", err)
	}
	return asked, nil
}

// notInHand is the refusal of volumeInHand.
func (tx *Tx) notInHand(verb string, v api.Volume) error {
	if v.Unheld() {
		return tx.notInCare(verb, v)
	}
	i := slices.IndexFunc(v.Attachments, func(a api.Attachment) bool { return a.Host == tx.host.Name })
	if i >= 0 {
		a := &v.Attachments[i]
		return api.Errorf(api.CodeStateForbidden, "cannot %s volume %s: its attachment %s to instance %s is %s", verb, v.Name, a.ID, a.InstanceName, a.State).With("state", a.State)
	}
	a := &v.Attachments[slices.IndexFunc(v.Attachments, func(a api.Attachment) bool { return a.Host != "" })]
	return api.Errorf(api.CodeNotYourHost, "cannot %s volume %s: it is at instance %s of host %s, and you are host %s; ask there, or at the registry", verb, v.Name, a.InstanceName, a.Host, tx.host.Name)
}

func (tx *Tx) notInCare(verb string, v api.Volume) error {
	return api.Errorf(api.CodeNotYourHost, "cannot %s volume %s: it is in the care of host %s, and you are host %s; ask there, or at the registry", verb, v.Name, v.Host, tx.host.Name)
}
