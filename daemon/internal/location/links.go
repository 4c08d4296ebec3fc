// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
)

type foreignLink struct {
	path string
	// pool is set if the link is in the directory of that pool. Otherwise who may have made the
	// link.
	pool *hv.PoolInfo
	who  string
}

// follow resolves the symbolic links in a path as the kernel does. The last part of the path need
// not exist. Links in the path of dir, a configured directory above path, are trusted. follow
// returns the first link that CheckFound does not permit instead of the real path.
func follow(path, dir string, pools []hv.PoolInfo) (real string, foreign *foreignLink, err error) {
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", nil, fmt.Errorf("follow the links in %s: %w", dir, err)
	}
	var inPool *foreignLink
	parts := strings.Split(strings.TrimPrefix(path, filepath.Clean(dir)), "/")
	for links := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		to, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		link := foreignIn(at, pools)
		switch {
		case link == nil:
		case link.pool == nil, len(parts) == 0 && isDirectory(at, link.pool.Path):
			link.path = next
			return "", link, nil
		case inPool == nil:
			inPool, link.path = link, next
		}
		if links++; links > maxLinks {
			return "", nil, fmt.Errorf("follow the links in %s: there are more than %d", path, maxLinks)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		parts = slices.Concat(strings.Split(to, "/"), parts)
	}
	if inPool != nil && poolAround(filepath.Dir(at), pools) != inPool.pool {
		return "", inPool, nil
	}
	return at, nil, nil
}

// foreignIn returns who besides root of this host may have made a link in a directory, or nil. The
// path of the directory has no links. For the directory of a pool of files it returns the pool,
// and does not check who can write there.
func foreignIn(dir string, pools []hv.PoolInfo) *foreignLink {
	if pool := poolAround(dir, pools); pool != nil {
		return &foreignLink{pool: pool}
	}
	if openfile.MadeByRoot(dir + "/") {
		return nil // only root makes links there
	}
	if fs, err := FilesystemOf(dir); err != nil || !fs.Local() {
		return &foreignLink{who: "another host that has its filesystem"}
	}
	if who := OpenTo(dir); who != "" {
		return &foreignLink{who: who}
	}
	return nil
}

func poolAround(dir string, pools []hv.PoolInfo) *hv.PoolInfo {
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if i := slices.IndexFunc(pools, func(p hv.PoolInfo) bool { return isDirectory(at, p.Path) }); i >= 0 {
			return &pools[i]
		}
	}
	return nil
}

func isDirectory(path, dir string) bool {
	if dir == "" {
		return false
	}
	if filepath.Clean(dir) == path {
		return true
	}
	same, err := SameImage(path, dir)
	return err == nil && same
}

// deepest returns the deepest of these directories above a path, or "". It also returns "" for a
// path with .., because the text of such a path is not reliable.
func deepest(dirs []string, path string) (found string) {
	if slices.Contains(strings.Split(path, "/"), "..") {
		return ""
	}
	for _, dir := range dirs {
		if dir != "" && below(path, dir) && len(filepath.Clean(dir)) > len(found) {
			found = filepath.Clean(dir)
		}
	}
	return found
}
