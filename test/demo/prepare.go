// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab"
)

// needBytes is the free space that the demo asks for: the volume, its copies,
// overlays and the packages.
const needBytes = 6 << 30

// prepare makes sure that the demo can run on this machine, and installs what
// is missing.
func prepare(ctx context.Context, n *narrator) error {
	if os.Geteuid() != 0 {
		return errors.New("it needs root, to install packages, mount file systems and start a libvirtd of its own.\n" +
			"Run it as root, or:  sudo env \"PATH=$PATH\" make demo")
	}
	n.say("Looking for what the demo needs, and installing what is missing.")
	if err := lab.EnsurePackages(ctx); err != nil {
		return err
	}
	if missing := lab.Missing(); len(missing) > 0 {
		return errors.New("it lacks " + strings.Join(missing, ", "))
	}
	if err := sweep(); err != nil { // it takes room, and is in nobody's way
		n.say("What a killed demo left cannot be removed, and the demo goes on: %v", err)
	}
	return enoughSpace(base())
}

// base is the directory in which the demo makes its own: on a disk, which /tmp
// need not be.
func base() string {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return dir
	}
	return "/var/tmp"
}

func enoughSpace(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look for space in %s: %w", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < needBytes {
		return fmt.Errorf("%s has %.1f GiB free and the demo needs %d.\nMake room, or name another directory:  make demo TMPDIR=/somewhere",
			dir, float64(free)/(1<<30), needBytes>>30)
	}
	return nil
}

// dirPrefix begins the name of the demo's directory.
const dirPrefix = "volferry-demo-"

// sweep removes what demos left that were killed and could not do it.
func sweep() error {
	swept, err := lab.Sweep()
	for _, dir := range swept {
		if top := filepath.Dir(dir); strings.HasPrefix(filepath.Base(top), dirPrefix) {
			err = errors.Join(err, os.RemoveAll(top))
		}
	}
	return err
}
