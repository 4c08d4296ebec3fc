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
	"github.com/volferry/volferry/internal/medium"
)

// Reach makes the calls that need network access, in this process (Host) or in another process.
type Reach interface {
	// Check returns an error if there is a problem with the access to a cluster.
	Check(ctx context.Context, cluster string, key *os.File) error
	// Look describes an image. The error wraps unix.ENOENT if the cluster reports that there is
	// none.
	Look(ctx context.Context, image medium.RBDImage, key *os.File) (Info, error)
	// Watchers returns the addresses of the clients that have an image open. It returns the errors
	// of Look.
	Watchers(ctx context.Context, image medium.RBDImage, key *os.File) ([]string, error)
	// Snapshot describes a snapshot of an image. It returns the errors of Look.
	Snapshot(ctx context.Context, image medium.RBDImage, query SnapshotQuery, key *os.File) (Snapshot, error)
	Change(ctx context.Context, image medium.RBDImage, change Change, key *os.File) error
	// Dial serves an image by NBD, and returns a connection to its server. The server ends with
	// the connection.
	Dial(ctx context.Context, image medium.RBDImage, writable bool, key *os.File) (net.Conn, error)
}

// Dial implements Reach.
func (h *Host) Dial(ctx context.Context, image medium.RBDImage, writable bool, key *os.File) (net.Conn, error) {
	return h.Serve(ctx, image, writable, key)
}

// Client opens images by their addresses. A nil Client is for a host without clusters; all its
// calls fail.
type Client struct {
	Clusters Clusters
	// Secret returns the value of a libvirt secret.
	Secret func(ctx context.Context, id string) ([]byte, error)
	Reach  Reach
}

func (c *Client) with(ctx context.Context, path string, do func(image medium.RBDImage, key *os.File) error) error {
	image, err := medium.ParseRBD(path)
	if err != nil {
		return err
	}
	return c.withKey(ctx, image, func(key *os.File) error { return do(image, key) })
}

var errNoClusters = errors.New("this host has no Ceph clusters")

func (c *Client) withKey(ctx context.Context, image medium.RBDImage, do func(key *os.File) error) error {
	if c == nil {
		return errNoClusters
	}
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

// Check returns an error if there is a problem with the access to a cluster.
func (c *Client) Check(ctx context.Context, cluster string) error {
	return c.withKey(ctx, medium.RBDImage{Cluster: cluster}, func(key *os.File) error { return c.Reach.Check(ctx, cluster, key) })
}

// Look describes the image at an address, with the errors of Reach.
func (c *Client) Look(ctx context.Context, path string) (info Info, err error) {
	err = c.with(ctx, path, func(image medium.RBDImage, key *os.File) error {
		info, err = c.Reach.Look(ctx, image, key)
		return err
	})
	return info, err
}

// LookWhole describes an image as Look does. It refuses an image if the cluster lacks some of its
// data (Info.DirtyCache).
func (c *Client) LookWhole(ctx context.Context, path string) (info Info, err error) {
	err = c.inspect(ctx, path, &info, Info.whole)
	return info, err
}

// Fence returns an error if unfinished writes of a killed client may still reach the image at an
// address.
func (c *Client) Fence(ctx context.Context, path string) error {
	return c.inspect(ctx, path, &Info{}, Info.fence)
}

func (c *Client) inspect(ctx context.Context, path string, info *Info, refuse func(Info, medium.RBDImage) error) error {
	return c.with(ctx, path, func(image medium.RBDImage, key *os.File) (err error) {
		if *info, err = c.Reach.Look(ctx, image, key); err != nil {
			return err
		}
		return refuse(*info, image)
	})
}

// Snapshot describes a snapshot of the image at an address. It returns the errors of Look.
func (c *Client) Snapshot(ctx context.Context, path string, query SnapshotQuery) (s Snapshot, err error) {
	err = c.with(ctx, path, func(image medium.RBDImage, key *os.File) error {
		s, err = c.Reach.Snapshot(ctx, image, query, key)
		return err
	})
	return s, err
}

// Change changes the image at an address.
func (c *Client) Change(ctx context.Context, path string, change Change) error {
	return c.with(ctx, path, func(image medium.RBDImage, key *os.File) error { return c.Reach.Change(ctx, image, change, key) })
}

// Make makes an image at an address. The image first has a temporary name, which no other client
// may use. Make calls whole with the image's id, and then renames the image; the id does not
// change. If whole fails, or an image exists at the address (the error wraps unix.EEXIST), Make
// removes the new image. An interruption leaves an image with the temporary name, or the image at
// its address.
func (c *Client) Make(ctx context.Context, path, temporary string, sizeBytes int64, whole func(id string) error) error {
	return c.with(ctx, path, func(image medium.RBDImage, key *os.File) error {
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

// Remove deletes the image with this id at an address once no client has it open. If id is empty,
// it deletes any image there. It is no error if the image is absent.
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
	return c.with(ctx, path, func(image medium.RBDImage, key *os.File) error {
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

// Open opens the image at an address. The export is lost when ctx ends.
func (c *Client) Open(ctx context.Context, path string, writable bool) (export *nbd.Export, err error) {
	err = c.with(ctx, path, func(image medium.RBDImage, key *os.File) error {
		conn, err := c.Reach.Dial(ctx, image, writable, key)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		export, err = nbd.OpenOn(ctx, conn, storagedaemon.ExportName, nbd.StallTimeout) // Ceph waits for its OSDs forever
		return err
	})
	return export, err
}

const (
	// watchTimeout is longer than two times: a server ends within 10 s, and a cluster counts a dead
	// client as a watcher of the image for 30 s (osd_client_watch_timeout).
	watchTimeout = 45 * time.Second
	watchPoll    = time.Second
)

// Count returns the minimum and maximum number of Volferry's own clients of an image. They are
// only counted, because a cluster identifies a client only by an address and a number, not by its
// owner.
type Count func(context.Context) (least, most int, err error)

// Holders describes the clients of the image at an address if they are more than the maximum of
// ours, or fewer than its minimum: then a client of Volferry has lost the cluster, and another
// client may be in its place. Otherwise it returns "". If ours is nil, it describes any client. It
// waits for clients that may have died. If ctx has a deadline, it does not wait, because the
// caller can repeat the call.
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

// holders calls ours before and after it counts all clients, because a guest may start or end
// meanwhile.
func (c *Client) holders(ctx context.Context, path string, ours Count) (string, error) {
	if ours == nil {
		ours = func(context.Context) (least, most int, err error) { return 0, 0, nil }
	}
	least, most, err := ours(ctx)
	if err != nil {
		return "", err
	}
	var watchers []string
	err = c.with(ctx, path, func(image medium.RBDImage, key *os.File) (err error) {
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
