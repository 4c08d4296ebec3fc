// SPDX-License-Identifier: Apache-2.0

// Package clusterfs makes nodes of a cluster filesystem, OCFS2, of what install.sh has fetched:
// the kernel and first file system that a guest boots from, and the network between them.
package clusterfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/volferry/volferry/test/lab/initrd"
)

// modules are what a node needs of its kernel: its disk and network, and OCFS2 with its own
// cluster stack.
var modules = []string{"virtio_pci", "virtio_blk", "virtio_net", "crc32c_generic", "configfs", "ocfs2_stackglue", "ocfs2_nodemanager", "ocfs2_dlm", "ocfs2_stack_o2cb", "ocfs2"}

// Root is the directory of install.sh. It is an error if there is none.
func Root() (string, error) {
	dir := os.Getenv("VOLFERRY_CLUSTERFS_CACHE")
	if dir == "" {
		dir = filepath.Join(sources(), "..", "..", ".cache", "clusterfs")
	}
	root := filepath.Join(dir, "root")
	if _, err := os.Stat(filepath.Join(root, "sbin", "mkfs.ocfs2")); err != nil {
		return "", fmt.Errorf("find the tools of OCFS2 (run test/clusterfs/install.sh): %w", err)
	}
	return root, nil
}

func sources() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// Boot writes what a node boots from into the directory dir, where QEMU may read it.
func Boot(ctx context.Context, dir string) (kernel, image string, err error) {
	root, err := Root()
	if err != nil {
		return "", "", err
	}
	kernels, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return "", "", fmt.Errorf("find the kernel of %s: %v, %w", root, kernels, err)
	}
	archive, err := firstFiles(ctx, root, strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-"))
	if err != nil {
		return "", "", fmt.Errorf("make the first files of a node: %w", err)
	}
	content, err := os.ReadFile(kernels[0])
	if err != nil {
		return "", "", fmt.Errorf("read the kernel of a node: %w", err)
	}
	kernel, image = filepath.Join(dir, "kernel"), filepath.Join(dir, "initrd")
	return kernel, image, errors.Join(os.WriteFile(kernel, content, 0o644), os.WriteFile(image, archive, 0o644)) //nolint:gosec // QEMU's user reads them
}

func firstFiles(ctx context.Context, root, release string) ([]byte, error) {
	var a initrd.Archive
	for _, dir := range []string{"bin", "sbin", "lib", "lib64", "lib/x86_64-linux-gnu", "proc", "sys", "dev", "etc", "run"} {
		a.Dir(dir)
	}
	files := map[string]string{"bin/busybox": filepath.Join(root, "bin", "busybox"), "init": filepath.Join(sources(), "init")}
	for _, tool := range []string{"mount.ocfs2", "ocfs2_hb_ctl"} {
		path := filepath.Join(root, "sbin", tool)
		files["sbin/"+tool] = path
		libraries, err := librariesOf(ctx, root, path)
		if err != nil {
			return nil, err
		}
		for _, library := range libraries {
			files["lib/x86_64-linux-gnu/"+filepath.Base(library)] = library
		}
	}
	files["lib64/ld-linux-x86-64.so.2"] = loader(root)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return nil, fmt.Errorf("read a first file: %w", err)
		}
		a.File(name, 0o755, content)
	}
	paths, err := initrd.ModuleFiles(filepath.Join(root, "lib", "modules", release), modules)
	if err != nil {
		return nil, err
	}
	if err := a.Modules(ctx, "/modules", paths); err != nil {
		return nil, err
	}
	return a.Bytes(), nil
}

// loader is the dynamic loader of the root, by which its programs run on this host as well.
func loader(root string) string { return filepath.Join(root, "usr", "lib64", "ld-linux-x86-64.so.2") }

// librariesOf are the libraries of a program of the root, which are all of the root.
func librariesOf(ctx context.Context, root, program string) ([]string, error) {
	out, err := inRoot(ctx, root, "--list", program)
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(out) {
		_, path, _ := strings.Cut(line, " => ")
		if path, _, ok := strings.Cut(path, " ("); ok && strings.HasPrefix(path, root) {
			found = append(found, path)
		}
	}
	return found, nil
}

// inRoot runs a program of the root with the root's libraries, and returns what it printed.
func inRoot(ctx context.Context, root string, args ...string) (string, error) {
	args = append([]string{"--library-path", filepath.Join(root, "usr", "lib", "x86_64-linux-gnu")}, args...)
	out, err := exec.CommandContext(ctx, loader(root), args...).CombinedOutput() //nolint:gosec // of a root of ours
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Format makes the image at path a filesystem for three nodes.
func Format(ctx context.Context, path string) error {
	return tool(ctx, "mkfs.ocfs2", "-N", "3", "--cluster-stack=o2cb", "--cluster-name=c", "-J", "size=8M", "-x", "-F", path)
}

// Check looks at the filesystem in the image at path, which no node has mounted.
func Check(ctx context.Context, path string) error {
	return tool(ctx, "fsck.ocfs2", "-f", "-n", path)
}

func tool(ctx context.Context, name string, args ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	_, err = inRoot(ctx, root, append([]string{filepath.Join(root, "sbin", name)}, args...)...)
	return err
}
