// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

const (
	// releasePattern matches the first release in VERSION.
	releasePattern = `^0\.1\.0$`
	// compatibleFile is changed by each commit before the first release that needs no upgrade from
	// the commits before it.
	compatibleFile = "test/site/compatible.txt"
	// schemaDir has one file for each version of the schema of the registry's database.
	schemaDir = "registry/internal/schema"
)

// Base returns the first commit of the tests of upgrades: compatibility is promised from this
// commit on (compatible.txt).
func Base(ctx context.Context) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return baseIn(ctx, root)
}

// baseIn is Base for the clone in a directory. A shallow clone is refused: its oldest commit
// seems to add every file.
func baseIn(ctx context.Context, root string) (string, error) {
	shallow, err := gitIn(ctx, root, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(shallow) == "true" {
		return "", errors.New("the tests of upgrades need the history of the clone: run git fetch --unshallow")
	}
	released, err := gitIn(ctx, root, "log", "--reverse", "--format=%H", "-G"+releasePattern, "--", "VERSION")
	if err != nil {
		return "", err
	}
	if commits := strings.Fields(released); len(commits) > 0 {
		return commits[0], nil // a later one writes the version after it
	}
	last, err := gitIn(ctx, root, "log", "-1", "--format=%H", "--", compatibleFile)
	if err != nil {
		return "", err
	}
	if last = strings.TrimSpace(last); last == "" {
		return "", fmt.Errorf("no commit has changed %s: is this a clone of the repository?", compatibleFile)
	}
	return last, nil
}

// SchemaGrew reports whether the registry of the source tree has more versions of its schema than
// the registry of a commit.
func SchemaGrew(ctx context.Context, commit string) (bool, error) {
	root, err := Root()
	if err != nil {
		return false, err
	}
	return schemaGrewIn(ctx, root, commit)
}

func schemaGrewIn(ctx context.Context, root, commit string) (bool, error) {
	before, err := gitIn(ctx, root, "ls-tree", "--name-only", commit, schemaDir+"/")
	if err != nil {
		return false, err
	}
	now, err := filepath.Glob(filepath.Join(root, schemaDir, "*.sql"))
	return len(now) > strings.Count(before, ".sql\n"), err
}
