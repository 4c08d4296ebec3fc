// SPDX-License-Identifier: Apache-2.0

// Package network opens the image at an address: an export of an NBD server, or an RBD image,
// which is served by NBD.
package network

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

// Access is this host's access to images on the network. The zero Access makes TCP connections
// itself, and has no Ceph clusters.
type Access struct {
	// Dial connects to NBD servers over TCP; with nil this process connects itself.
	Dial nbd.Dial
	// RBD opens RBD images. It is nil for a host without clusters.
	RBD *rbd.Client
}

type protocol interface {
	open(ctx context.Context, path string, writable bool) (*nbd.Export, error)
	look(ctx context.Context, path string) (sizeBytes int64, id string, err error)
}

func (a Access) at(path string) (protocol, error) {
	switch name := medium.Of(path).Protocol; name {
	case medium.ProtocolNBD:
		return exports{a.Dial}, nil
	case medium.ProtocolRBD:
		return images{a.RBD}, nil
	default:
		return nil, fmt.Errorf("%s is no address of an image", path)
	}
}

// Open opens the image at an address. The export is lost when ctx ends. An open for reading
// excludes no other client, and changes nothing.
func (a Access) Open(ctx context.Context, path string, writable bool) (*nbd.Export, error) {
	p, err := a.at(path)
	if err != nil {
		return nil, err
	}
	return p.open(ctx, path, writable)
}

// SizeBytes returns the size that Look returns.
func (a Access) SizeBytes(ctx context.Context, path string) (int64, error) {
	n, _, err := a.Look(ctx, path)
	return n, err
}

// Look returns the size of the image at an address and, for an RBD image, its id. It refuses an
// RBD image if the cluster lacks some of its data. For an RBD image the error wraps unix.ENOENT if
// the cluster reports that there is none.
func (a Access) Look(ctx context.Context, path string) (sizeBytes int64, id string, err error) {
	p, err := a.at(path)
	if err != nil {
		return 0, "", err
	}
	return p.look(ctx, path)
}

// Answers returns nbd.ErrNoAnswer if the export of an NBD server does not answer a read and a
// flush within answerTimeout, or until the deadline of ctx. Any answer counts, even a refusal. An
// unreachable machine does not answer.
func (a Access) Answers(ctx context.Context, export string) error {
	return exports{a.Dial}.answers(ctx, export)
}
