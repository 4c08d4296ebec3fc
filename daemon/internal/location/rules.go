// SPDX-License-Identifier: Apache-2.0

package location

import (
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
)

// Rules are what the operator decides about locations that are given by path.
type Rules struct {
	// AllowedPaths are the directories that such a location may be in. Empty:
	// everywhere but where the system lives.
	AllowedPaths []string
	// Own are the directories of Volferry itself, whatever AllowedPaths says: what is
	// there is the journal, or what guests have in memory.
	Own []string
}

// maxPathBytes is Linux's PATH_MAX without its terminating zero.
const maxPathBytes = 4095

// systemDirs are where a volume may not be unless the configuration says so.
var systemDirs = []string{
	"/bin", "/boot", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr",
	"/var/lib/libvirt/qemu", "/var/lib/volferry-registry", "/var/log",
}

// CheckPath refuses paths that could mean something else than they say to
// libvirt or QEMU (invalid_argument), and paths that the rules do not allow
// (permission_denied). What is at the path need not exist, its directory must.
func (r Rules) CheckPath(path string) error {
	bad := func(why string) error {
		return api.Errorf(api.CodeInvalidArgument, "path %.120q %s", path, why)
	}
	switch {
	case len(path) > maxPathBytes:
		return bad("is too long")
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return bad("has characters that no path of a volume may have")
	case !filepath.IsAbs(path):
		return bad("is not absolute")
	case filepath.Clean(path) != path:
		return bad("is not clean: say " + filepath.Clean(path))
	}
	// With links followed: what a link inside an allowed directory points to is
	// not allowed by that.
	real, err := resolve(path)
	if err != nil {
		return bad("is in a directory that does not exist")
	}
	for _, dir := range r.Own {
		if within(real, dir) {
			return bad("is in " + dir + ", which is Volferry's own")
		}
	}
	return r.checkAllowed(path, real)
}

// checkAllowed judges a path by where it leads.
func (r Rules) checkAllowed(path, real string) error {
	if len(r.AllowedPaths) == 0 {
		for _, dir := range systemDirs {
			if within(real, dir) {
				return api.Errorf(api.CodePermissionDenied, "%s is in %s, where volumes do not belong; allowed_paths in the configuration could say otherwise", path, dir)
			}
		}
		return nil
	}
	for _, dir := range r.AllowedPaths {
		if within(real, dir) {
			return nil
		}
	}
	return api.Errorf(api.CodePermissionDenied, "%s is in none of the directories that this host allows for volumes (%s); see allowed_paths in the configuration",
		path, strings.Join(r.AllowedPaths, ", "))
}

// resolve follows the links in a path whose last part may not exist yet.
func resolve(path string) (string, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// within says whether a clean path is below dir, itself reached by any link;
// nothing is within "".
func within(path, dir string) bool {
	if dir == "" {
		return false
	}
	below := func(dir string) bool {
		return strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
	}
	if below(dir) {
		return true
	}
	real, err := filepath.EvalSymlinks(dir)
	return err == nil && below(real)
}
