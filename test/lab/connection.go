// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Connection is a libvirtd at which guests can be defined, whoever runs it: the lab
// (Libvirtd), or the init of a machine. Its methods may be called from any goroutine.
type Connection struct {
	// Dir is a directory for what belongs to guests, as libvirtd sees it.
	Dir string
	// Root is where the test sees the root of libvirtd's file system. It is empty where
	// a path means the same to both.
	Root string

	channels []string // patterns of where libvirt makes the directory of a guest's sockets, before its name, as the test sees it
	virsh    func(ctx context.Context, args ...string) (string, error)
}

// Connect is a connection to a libvirtd that the lab does not run, with the directories
// of the Debian packages. Its file system is below root, a path without symbolic links;
// dir in it is made for what belongs to guests. virsh runs virsh beside that libvirtd.
func Connect(root, dir string, virsh func(ctx context.Context, args ...string) (string, error)) *Connection {
	return &Connection{
		Dir: dir, Root: root, virsh: virsh,
		channels: channelsIn(filepath.Join(root, "/var/lib/libvirt"), filepath.Join(root, "/run/libvirt")),
	}
}

// channelsIn are the patterns for libvirt's directories for state that stays, and for state
// that a reboot ends, where libvirt has the sockets since version 10.
func channelsIn(lib, run string) []string {
	return []string{filepath.Join(lib, "qemu/channel/target/domain-*-"), filepath.Join(run, "qemu/channel/*-")}
}

// Virsh runs virsh against this libvirtd and returns its standard output. The
// error carries what virsh said.
func (c *Connection) Virsh(ctx context.Context, args ...string) (string, error) {
	return c.virsh(ctx, args...)
}

// DirPool defines and starts a storage pool of type dir.
func (c *Connection) DirPool(ctx context.Context, name, path string) error {
	if err := os.MkdirAll(c.here(path), 0o755); err != nil {
		return fmt.Errorf("make pool: %w", err)
	}
	if _, err := c.Virsh(ctx, "pool-define-as", name, "dir", "--target", path); err != nil {
		return err
	}
	_, err := c.Virsh(ctx, "pool-start", name)
	return err
}

// here is a path of libvirtd's file system as the test sees it.
func (c *Connection) here(path string) string {
	if c.Root == "" {
		return path
	}
	return filepath.Join(c.Root, path)
}

// lend makes a file of the test one that libvirtd sees, and returns its path there.
func (c *Connection) lend(file string) (string, error) {
	if c.Root == "" {
		return file, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("lend a file to libvirtd: %w", err)
	}
	lent := filepath.Join(c.Dir, "guest", filepath.Base(file))
	if err := os.WriteFile(c.here(lent), data, 0o644); err != nil {
		return "", fmt.Errorf("lend a file to libvirtd: %w", err)
	}
	return lent, nil
}
