// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildAt builds the three programs as they were at a commit, unless that was done before,
// and returns the directory that has them.
func BuildAt(ctx context.Context, commit string) (string, error) {
	return madeAt(ctx, commit, "bin", buildIn)
}

// PackagesAt makes the packages of a commit, as make packages does, unless that was done
// before, and returns the directory that has them. They are older than all that have a
// commit in their version.
func PackagesAt(ctx context.Context, commit string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return madeAt(ctx, commit, "dist", func(ctx context.Context, src, commit string) error {
		if err := buildIn(ctx, src, commit); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "packaging/build.sh", filepath.Join(root, "bin", "nfpm"), "0.0.0~g"+commit[:12], "0", "dist")
		cmd.Dir = src
		_, err := output(cmd)
		return err
	})
}

// madeAt returns a directory that build made in the sources of a commit. It is kept.
func madeAt(ctx context.Context, commit, name string, build func(ctx context.Context, src, commit string) error) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	made := filepath.Join(root, ".cache", "older", commit, name)
	if _, err := os.Stat(made); err == nil {
		return made, nil
	}
	if err := os.MkdirAll(filepath.Dir(made), 0o755); err != nil {
		return "", fmt.Errorf("build %s: %w", commit, err)
	}
	src, err := os.MkdirTemp(filepath.Dir(made), "src-")
	if err != nil {
		return "", fmt.Errorf("build %s: %w", commit, err)
	}
	defer func() { _ = os.RemoveAll(src) }()
	if err := errors.Join(extract(ctx, commit, src), build(ctx, src, commit)); err != nil {
		return "", fmt.Errorf("build %s: %w", commit, err)
	}
	// Another test may have done it meanwhile.
	if err := os.Rename(filepath.Join(src, name), made); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("build %s: %w", commit, err)
	}
	return made, nil
}

// extract puts the sources of a commit into dir.
func extract(ctx context.Context, commit, dir string) error {
	tar := filepath.Join(dir, "src.tar")
	if _, err := git(ctx, "archive", "--output", tar, commit); err != nil {
		return err
	}
	_, err := output(exec.CommandContext(ctx, "tar", "-C", dir, "-xf", tar))
	return err
}

// buildIn builds the programs of the sources in src into src/bin.
func buildIn(ctx context.Context, src, commit string) error {
	for program, folder := range map[string]string{"volferryd": "./daemon", "volferry-registry": "./registry", "volferryctl": "./ctl"} {
		version := "-X github.com/volferry/volferry/internal/version.Version=older-" + commit[:12]
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", version, "-o", filepath.Join("bin", program), folder)
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", "bin/connectors/", "./daemon/connectors/...")
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	_, err := output(cmd)
	return err
}

func git(ctx context.Context, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return gitIn(ctx, root, args...)
}

// gitIn runs git in the clone in a directory.
func gitIn(ctx context.Context, root string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", root, "-c", "safe.directory=*"}, args...)...))
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(out), nil
}
