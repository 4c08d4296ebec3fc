// SPDX-License-Identifier: Apache-2.0

// Package network opens the image at an address: an export of an NBD server, or an RBD image,
// which is served by NBD. It must not know what a copy is.
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

// Access is this host's access to images at addresses. The zero Access is for a process with a
// network, and a host without Ceph clusters.
type Access struct {
	// Dial connects to NBD servers over TCP; nil for a process with a network.
	Dial nbd.Dial
	// RBD opens RBD images; nil for a host without clusters.
	RBD *rbd.Client
}

var errNoClusters = errors.New("this host has no Ceph clusters")

// Open opens the image at an address, until ctx ends at the latest. An open for reading excludes no
// other client, and changes nothing.
func (a Access) Open(ctx context.Context, path string, writable bool) (*nbd.Export, error) {
	if medium.IsRBD(path) {
		if a.RBD == nil {
			return nil, errNoClusters
		}
		return a.RBD.Open(ctx, path, writable)
	}
	address, err := medium.ParseNBD(path)
	if err != nil {
		return nil, err
	}
	return nbd.Open(ctx, a.Dial, address)
}

// SizeBytes is Look without the id.
func (a Access) SizeBytes(ctx context.Context, path string) (int64, error) {
	n, _, err := a.Look(ctx, path)
	return n, err
}

// Look returns the size of the image at an address, and the id of an RBD image; an export has no
// id. It refuses an RBD image if the cluster does not have all of its data. For an RBD image the
// error wraps unix.ENOENT if the cluster reports that there is none.
func (a Access) Look(ctx context.Context, path string) (sizeBytes int64, id string, err error) {
	if medium.IsRBD(path) {
		info, image, err := a.look(ctx, path)
		if err == nil {
			err = info.Whole(image)
		}
		return info.SizeBytes, info.ID, err
	}
	export, err := a.Open(ctx, path, false)
	if err != nil {
		return 0, "", err
	}
	return export.SizeBytes(), "", export.Close()
}

// answerTimeout is how long an export may take to be opened, read and flushed.
const answerTimeout = 20 * time.Second

// Answers returns nbd.ErrNoAnswer if an export answers neither a read nor a flush within
// answerTimeout, or until the deadline of ctx. Any answer counts, even a refusal; an unreachable
// machine does not answer.
func (a Access) Answers(ctx context.Context, path string) error {
	if !medium.IsNBD(path) {
		return nil
	}
	err := a.touch(ctx, path)
	for _, silent := range []error{nbd.ErrNoAnswer, context.DeadlineExceeded, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ETIMEDOUT} {
		if errors.Is(err, silent) {
			return nbd.ErrNoAnswer
		}
	}
	return nil
}

func (a Access) touch(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, nbd.ErrNoAnswer)
	defer cancel()
	export, err := a.Open(ctx, path, false)
	if err != nil {
		return err
	}
	_, err = export.ReadAt(make([]byte, min(export.SizeBytes(), 4<<10)), 0)
	return errors.Join(cmp.Or(err, export.Flush()), export.Close())
}

// Fingerprint identifies an RBD image among later ones at the same address. For an export it is
// the address: the protocol has no identity.
func (a Access) Fingerprint(ctx context.Context, path string) (string, error) {
	if !medium.IsRBD(path) {
		return "export " + path, nil
	}
	info, _, err := a.look(ctx, path)
	if err != nil {
		return "", err
	}
	return rbdFingerprint(info.ID, path), nil
}

func rbdFingerprint(id, path string) string { return "rbd image " + id + " at " + path }

// Make is rbd.Client's Make, and calls whole with the image's fingerprint.
func (a Access) Make(ctx context.Context, path, temporary string, sizeBytes int64, whole func(fingerprint string) error) error {
	if a.RBD == nil {
		return errNoClusters
	}
	return a.RBD.Make(ctx, path, temporary, sizeBytes, func(id string) error { return whole(rbdFingerprint(id, path)) })
}

// Remove deletes the RBD image with this fingerprint at an address, once no client has it open. An
// absent image is no error. Without a fingerprint the address must be unique, so that no other
// program can have used it.
func (a Access) Remove(ctx context.Context, path, fingerprint string) error {
	if a.RBD == nil {
		return errNoClusters
	}
	id := ""
	if fingerprint != "" {
		var err error
		if id, err = rbdID(fingerprint); err != nil {
			return err
		}
	}
	return a.RBD.Remove(ctx, path, id)
}

// IdentityIn returns the id in an RBD image's fingerprint; empty for anything else.
func IdentityIn(fingerprint string) string {
	id, err := rbdID(fingerprint)
	if err != nil {
		return ""
	}
	return id
}

func rbdID(fingerprint string) (id string, err error) {
	if _, err := fmt.Sscanf(fingerprint, "rbd image %s at", &id); err != nil {
		return "", fmt.Errorf("%q is no fingerprint of an RBD image: %w", fingerprint, err)
	}
	return id, nil
}

// Snapshot describes a snapshot of the RBD image at an address, and with compare whether the image
// was written since. The error wraps unix.ENOENT if there is no image.
func (a Access) Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error) {
	if a.RBD == nil {
		return rbd.Snapshot{}, errNoClusters
	}
	return a.RBD.Snapshot(ctx, path, rbd.SnapshotQuery{Name: name, Compare: compare})
}

// MakeSnapshot makes a snapshot of the RBD image with this fingerprint at an address.
func (a Access) MakeSnapshot(ctx context.Context, path, fingerprint, name string) error {
	return a.change(ctx, path, fingerprint, rbd.Change{Snapshot: name})
}

// RemoveSnapshot removes the snapshot with this name and id of the RBD image with this
// fingerprint. An absent snapshot is no error.
func (a Access) RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error {
	return a.change(ctx, path, fingerprint, rbd.Change{RemoveSnapshot: name, SnapshotID: id})
}

func (a Access) change(ctx context.Context, path, fingerprint string, change rbd.Change) (err error) {
	if a.RBD == nil {
		return errNoClusters
	}
	if change.ID, err = rbdID(fingerprint); err != nil {
		return err
	}
	return a.RBD.Change(ctx, path, change)
}

// Holders describes who has the image at an address open, besides the clients that ours counts, or
// "": an NBD server does not report its other clients.
func (a Access) Holders(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error) {
	if !medium.IsRBD(path) {
		return "", nil
	}
	if a.RBD == nil {
		return "", errNoClusters
	}
	return a.RBD.Holders(ctx, path, ours)
}

// Fence refuses an RBD image if nothing stops the unfinished writes of a killed client. For an
// export this is unknown.
func (a Access) Fence(ctx context.Context, path string) error {
	if !medium.IsRBD(path) {
		return nil
	}
	info, image, err := a.look(ctx, path)
	if err != nil {
		return err
	}
	return info.Fence(image)
}

func (a Access) look(ctx context.Context, path string) (info rbd.Info, image medium.RBDImage, err error) {
	if a.RBD == nil {
		return info, image, errNoClusters
	}
	if image, err = medium.ParseRBD(path); err == nil {
		info, err = a.RBD.Look(ctx, path)
	}
	return info, image, err
}
