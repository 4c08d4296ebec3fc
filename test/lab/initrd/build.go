// SPDX-License-Identifier: Apache-2.0

package initrd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Build compiles the program whose sources are in a directory for a machine that has nothing
// else.
func Build(ctx context.Context, sources string) ([]byte, error) {
	out, err := os.MkdirTemp("", "vflab-init-")
	if err != nil {
		return nil, fmt.Errorf("make build directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(out) }()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(out, "init"), ".")
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the first program: %w: %s", err, msg)
	}
	return os.ReadFile(filepath.Join(out, "init"))
}

// Modules adds the files of kernel modules to a new directory, from where LoadModules loads
// them in this order.
func (a *Archive) Modules(ctx context.Context, dir string, files []string) error {
	dir = strings.TrimPrefix(dir, "/")
	a.Dir(dir)
	for i, path := range files {
		content, err := readModule(ctx, path)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		a.File(fmt.Sprintf("%s/%02d-%s", dir, i, name), 0o644, content)
	}
	return nil
}

// readModule returns a module as the kernel loads it. Debian 13 compresses the
// files, and not every kernel can undo that.
func readModule(ctx context.Context, path string) ([]byte, error) {
	read := func() ([]byte, error) { return os.ReadFile(path) }
	if filepath.Ext(path) == ".xz" {
		read = exec.CommandContext(ctx, "xz", "--decompress", "--stdout", path).Output
	}
	content, err := read()
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", path, err)
	}
	return content, nil
}

// ModuleFiles finds the files of modules of a kernel in the directory of its modules, each after
// those that it depends on, by the list that depmod has made. One that is built in has none.
func ModuleFiles(dir string, names []string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	needs := make(map[string][]string) // the last to be loaded first
	for line := range strings.Lines(string(text)) {
		module, others, _ := strings.Cut(line, ":")
		needs[strings.TrimSuffix(filepath.Base(module), ".ko")] = append([]string{module}, strings.Fields(others)...)
	}
	var files []string
	for _, name := range names {
		for _, file := range slices.Backward(needs[name]) {
			if file = filepath.Join(dir, file); !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}
