// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

type careTx struct{ *Tx }

// inCare is OwnVolume for a change of the volume itself, by the host that has it in its care:
// hosts that only reach the bytes may attach it, but not rename or forget it. Another host may
// delete the volume if an operator has requested that from it.
func (tx careTx) inCare(ctx context.Context, ref, verb string) (api.Volume, error) {
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

// inHand is OwnVolume for a change of the volume's bytes. It admits operators, and these hosts: a
// host that has an instance with the volume (a reserved attachment does not count); the host that
// has the volume in its care, while the volume is unheld; and a host that has taken a task about
// the volume and has not answered it yet.
func (tx careTx) inHand(ctx context.Context, ref, verb string) (api.Volume, error) {
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

// seen is inHand for a host's report about the volume's image. While another host has an instance
// with the volume, it refuses, because a false report would harm that instance. advice returns the
// operator's command for this case.
func (tx careTx) seen(ctx context.Context, ref, verb string, advice func(api.Volume) string) (api.Volume, error) {
	v, err := tx.inHand(ctx, ref, verb)
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

// wasAsked reports whether the calling host has taken, and not yet answered, a task about the
// volume that meets condition, an SQL condition. In condition ?2 is the volume's path in the API.
func (tx careTx) wasAsked(ctx context.Context, condition, volumeID string) (asked bool, err error) {
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM tasks WHERE host_id = ?1 AND state = 'taken' AND "+condition+")",
		tx.host.ID, "/v1/volumes/"+volumeID).Scan(&asked); err != nil {
		return false, fmt.Errorf("look up task: %w", err)
	}
	return asked, nil
}

func (tx careTx) notInHand(verb string, v api.Volume) error {
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

func (tx careTx) notInCare(verb string, v api.Volume) error {
	return api.Errorf(api.CodeNotYourHost, "cannot %s volume %s: it is in the care of host %s, and you are host %s; ask there, or at the registry", verb, v.Name, v.Host, tx.host.Name)
}
