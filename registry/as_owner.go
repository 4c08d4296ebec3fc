// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/shell"
)

// refuseDirectoryOfOthers refuses to run as root if another user owns the database's directory:
// SQLite makes files there, and the owner could make root open and change any file. file is the
// file to make, "" for none.
func (in *invocation) refuseDirectoryOfOthers(file string) (err error) {
	if os.Geteuid() != 0 {
		return nil
	}
	dir, err := atomicfile.OpenDirectory(filepath.Dir(in.cfg.DB))
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	uid, gid, err := dir.Owner()
	if err != nil || uid == 0 {
		return err
	}
	owner := databaseOwner{uid, groupOf(uid, gid)}
	refused := fmt.Sprintf("the directory of %s belongs to the user with the id %d; run this as that user: ", in.cfg.DB, uid)
	if file == "" || owner.mayMakeIn(filepath.Dir(file)) {
		return fmt.Errorf("%s`%s`", refused, owner.line(os.Args))
	}
	// An unused name: the database may have the name of the file.
	there := filepath.Join(filepath.Dir(in.cfg.DB), filepath.Base(file)+time.Now().UTC().Format(".20060102T150405.000000"))
	args := make([]string, 0, len(os.Args))
	for _, arg := range os.Args {
		if arg == file {
			arg = there
		}
		args = append(args, arg)
	}
	return fmt.Errorf("%s`%s`, and move the file once it is made, since that user cannot make one in %s: `%s`",
		refused, owner.line(args), filepath.Dir(file), shell.Line("mv", "-n", "--", there, file))
}

type databaseOwner struct{ uid, gid int }

// groupOf returns the directory's group, which gives the user access to the files there, or the
// user's own instead of root's.
func groupOf(uid, dirGID int) int {
	if dirGID != 0 {
		return dirGID
	}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		if gid, err := strconv.Atoi(u.Gid); err == nil {
			return gid
		}
	}
	return uid
}

func (o databaseOwner) line(args []string) string {
	as := []string{"setpriv", "--reuid", strconv.Itoa(o.uid), "--regid", strconv.Itoa(o.gid), "--clear-groups"}
	return shell.Line(append(as, args...)...)
}

// mayMakeIn reports whether the user may make a file in dir, by the modes of dir and of its
// parents. Through a symbolic link, the parents of the link and of its target count.
func (o databaseOwner) mayMakeIn(dir string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	resolved, err := filepath.EvalSymlinks(dir)
	return err == nil && o.may(dir, 0o3) && o.mayReach(dir) && o.mayReach(resolved)
}

func (o databaseOwner) mayReach(dir string) bool {
	for dir != "/" {
		if dir = filepath.Dir(dir); !o.may(dir, 0o1) {
			return false
		}
	}
	return true
}

// may reports whether the mode of dir gives the user these rights (bits of rwx).
func (o databaseOwner) may(dir string, rights uint32) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	mode := st.Mode
	switch {
	case int64(st.Uid) == int64(o.uid):
		mode >>= 6
	case int64(st.Gid) == int64(o.gid):
		mode >>= 3
	}
	return mode&rights == rights
}
