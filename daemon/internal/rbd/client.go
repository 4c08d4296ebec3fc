// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
	"github.com/volferry/volferry/internal/api"
)

// Reach is what takes a network: this process has one (Host), or another one does it.
type Reach interface {
	// Check says what is wrong with the way to a cluster.
	Check(ctx context.Context, cluster string, key *os.File) error
	// Look asks what an image is. The error wraps unix.ENOENT if the cluster says that there is
	// none.
	Look(ctx context.Context, image api.RBDImage, key *os.File) (Info, error)
	// Watchers asks for the addresses of the clients that have an image open. The error is as that
	// of Look.
	Watchers(ctx context.Context, image api.RBDImage, key *os.File) ([]string, error)
	// Snapshot asks about a snapshot of an image. The error is as that of Look.
	Snapshot(ctx context.Context, image api.RBDImage, query SnapshotQuery, key *os.File) (Snapshot, error)
	// Change changes an image.
	Change(ctx context.Context, image api.RBDImage, change Change, key *os.File) error
	// Dial has an image served, and returns a connection on which that is said by which NBD is
	// spoken. The server ends with the connection.
	Dial(ctx context.Context, image api.RBDImage, writable bool, key *os.File) (net.Conn, error)
}

// Dial implements Reach.
func (h *Host) Dial(ctx context.Context, image api.RBDImage, writable bool, key *os.File) (net.Conn, error) {
	return h.Serve(ctx, image, writable, key)
}

// Client opens images by their addresses.
type Client struct {
	Clusters Clusters
	// Secret returns the value of a secret of libvirt's.
	Secret func(ctx context.Context, id string) ([]byte, error)
	Reach  Reach
}

// with calls do with an image and the key of its cluster's user.
func (c *Client) with(ctx context.Context, path string, do func(image api.RBDImage, key *os.File) error) error {
	image, err := api.ParseRBD(path)
	if err != nil {
		return err
	}
	return c.withKey(ctx, image, func(key *os.File) error { return do(image, key) })
}

func (c *Client) withKey(ctx context.Context, image api.RBDImage, do func(key *os.File) error) error {
	cluster, err := c.Clusters.Find(image)
	if err != nil {
		return err
	}
	key, err := c.Secret(ctx, cluster.Secret)
	if err != nil {
		return fmt.Errorf("read the key of user %s of Ceph: %w", cluster.User, err)
	}
	f, err := keyFile(key)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return do(f)
}

// Check says what is wrong with the way to one of the clusters.
func (c *Client) Check(ctx context.Context, cluster string) error {
	return c.withKey(ctx, api.RBDImage{Cluster: cluster}, func(key *os.File) error { return c.Reach.Check(ctx, cluster, key) })
}

// Look asks what the image at an address is. The error wraps unix.ENOENT if the cluster says that
// there is none.
func (c *Client) Look(ctx context.Context, path string) (info Info, err error) {
	err = c.with(ctx, path, func(image api.RBDImage, key *os.File) error {
		info, err = c.Reach.Look(ctx, image, key)
		return err
	})
	return info, err
}

// Snapshot asks about a snapshot of the image at an address. The error is as that of Look.
func (c *Client) Snapshot(ctx context.Context, path string, query SnapshotQuery) (s Snapshot, err error) {
	err = c.with(ctx, path, func(image api.RBDImage, key *os.File) error {
		s, err = c.Reach.Snapshot(ctx, image, query, key)
		return err
	})
	return s, err
}

// Change changes the image at an address.
func (c *Client) Change(ctx context.Context, path string, change Change) error {
	return c.with(ctx, path, func(image api.RBDImage, key *os.File) error { return c.Reach.Change(ctx, image, change, key) })
}

// Make makes an image at an address. It has a temporary name, which nobody else may have, until
// whole was called with its id, which it keeps: if that fails, or the error wraps unix.EEXIST since
// there is an image at the address, nothing is left. Whatever is cut off leaves an image of the
// temporary name, or the image at its address.
func (c *Client) Make(ctx context.Context, path, temporary string, sizeBytes int64, whole func(id string) error) error {
	return c.with(ctx, path, func(image api.RBDImage, key *os.File) error {
		hidden := image
		hidden.Name = temporary
		err := c.Reach.Change(ctx, hidden, Change{CreateBytes: sizeBytes}, key)
		if err != nil && !errors.Is(err, unix.EEXIST) { // an answer may have been lost
			return fmt.Errorf("make %s: %w", path, err)
		}
		info, err := c.Reach.Look(ctx, hidden, key)
		switch {
		case err != nil:
			return fmt.Errorf("make %s: %w", path, err)
		case info.SizeBytes != sizeBytes:
			err = fmt.Errorf("make %s: it was made with %d bytes, and has to have %d", path, info.SizeBytes, sizeBytes)
		default:
			err = whole(info.ID)
		}
		if err == nil {
			err = c.Reach.Change(ctx, hidden, Change{RenameTo: image.Name, ID: info.ID}, key)
		}
		if err != nil {
			return errors.Join(err, c.Reach.Change(ctx, hidden, Change{Remove: true, ID: info.ID}, key))
		}
		return nil
	})
}

// Remove deletes the image at an address that has this id, whichever it has if that is empty, once
// nobody has it open; it is no error if there is none.
func (c *Client) Remove(ctx context.Context, path, id string) error {
	has, err := c.Holders(ctx, path, nil)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("remove %s: %w", path, err)
	case has != "":
		return fmt.Errorf("remove %s: %s", path, has)
	}
	return c.with(ctx, path, func(image api.RBDImage, key *os.File) error {
		info, err := c.Reach.Look(ctx, image, key)
		if err == nil {
			err = c.Reach.Change(ctx, image, Change{Remove: true, ID: cmp.Or(id, info.ID)}, key)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove %s: %w", path, err)
		}
		return nil
	})
}

// Open opens the image at an address. It does not outlast ctx.
func (c *Client) Open(ctx context.Context, path string, writable bool) (export *nbd.Export, err error) {
	err = c.with(ctx, path, func(image api.RBDImage, key *os.File) error {
		conn, err := c.Reach.Dial(ctx, image, writable, key)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		export, err = nbd.OpenOn(ctx, conn, storagedaemon.ExportName, nbd.StallTimeout) // Ceph itself waits for its OSDs for ever
		return err
	})
	return export, err
}

const (
	// watchTimeout is above the 10 s that a server is given to end, and the 30 s for which a
	// cluster takes a client for one that has an image open after the client has died
	// (osd_client_watch_timeout).
	watchTimeout = 45 * time.Second
	watchPoll    = time.Second
)

// Count says how many clients of an image there may be, and have to be: a cluster names a client by
// an address and a number, by which nobody can tell whose it is.
type Count func(context.Context) (least, most int, err error)

// Holders says who has the image at an address open besides the clients that ours counts, which may
// be nil for none; "" if nobody has. Fewer of them than there have to be are said as well: one of
// ours has lost the cluster, and somebody else may be in its place. A client that may have died is
// waited for, unless ctx has a deadline: then somebody waits for an answer, and can ask once more.
func (c *Client) Holders(ctx context.Context, path string, ours Count) (string, error) {
	_, once := ctx.Deadline()
	gone := time.NewTimer(watchTimeout)
	defer gone.Stop()
	tick := time.NewTicker(watchPoll)
	defer tick.Stop()
	for {
		has, err := c.holders(ctx, path, ours)
		if err != nil || has == "" || once {
			return has, err
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-gone.C:
			return has, nil
		case <-tick.C:
		}
	}
}

// holders is one look of Holders. Ours are counted before and after the others, since a guest may
// come or go meanwhile.
func (c *Client) holders(ctx context.Context, path string, ours Count) (string, error) {
	if ours == nil {
		ours = func(context.Context) (least, most int, err error) { return 0, 0, nil }
	}
	least, most, err := ours(ctx)
	if err != nil {
		return "", err
	}
	var watchers []string
	err = c.with(ctx, path, func(image api.RBDImage, key *os.File) (err error) {
		watchers, err = c.Reach.Watchers(ctx, image, key)
		return err
	})
	if err != nil {
		return "", err
	}
	leastNow, mostNow, err := ours(ctx)
	switch n := len(watchers); {
	case err != nil:
		return "", err
	case n > min(most, mostNow):
		return "a client of Ceph at " + strings.Join(watchers, " and ") + " has it open (rbd status); one that has died is gone after some 40 seconds", nil
	case n < max(least, leastNow):
		return "QEMU has it open, and Ceph has lost that client: look whether its guest still works, and restart it", nil
	}
	return "", nil
}
