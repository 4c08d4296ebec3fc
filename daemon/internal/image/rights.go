// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/sandbox"
)

// Rights are the access rights of an image file: owner and group, mode, access list and security
// label.
type Rights struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // only the permission bits
	// ACL and Label have the kernel's format. They are empty if the file has none.
	ACL   []byte `json:"acl,omitempty"`
	Label []byte `json:"label,omitempty"`
}

// The names of the extended attributes with a file's access list and label.
const (
	attrACL   = "system.posix_acl_access"
	attrLabel = "security.selinux"
)

func (h host) rights(ctx context.Context, path string) (*Rights, error) {
	f, err := h.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, noImage(err)
	}
	defer func() { _ = f.Close() }()
	r, err := readRights(ctx, h.privileged, f)
	if err != nil {
		return nil, fmt.Errorf("read the rights on %s: %w", path, err)
	}
	return r, nil
}

func readRights(ctx context.Context, privileged sandbox.Privileged, f *os.File) (*Rights, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil //nolint:nilnil // udev sets the rights of a device
	}
	r := &Rights{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o777}
	// Reading libvirt's attributes needs CAP_SYS_ADMIN. Without it, or on a filesystem without
	// such attributes, no previous owner is found.
	remembered := func(f *os.File, name string) ([]byte, error) { return privileged.Attribute(ctx, f, name) }
	var owner []byte
	for _, a := range []struct {
		name string
		read func(f *os.File, name string) ([]byte, error)
		into *[]byte
	}{
		{attrACL, sandbox.Fgetxattr, &r.ACL},
		{attrLabel, sandbox.Fgetxattr, &r.Label},
		{sandbox.AttrLabelBefore, remembered, &r.Label},
		{sandbox.AttrOwnerBefore, remembered, &owner},
	} {
		value, err := a.read(f, a.name)
		if err != nil && !errors.Is(err, unix.ENODATA) && !refused(err) {
			return nil, fmt.Errorf("read %s: %w", a.name, err)
		}
		if len(value) > 0 {
			*a.into = value
		}
	}
	if len(owner) == 0 {
		return r, nil
	}
	return r, r.ownedBy(string(owner))
}

func (r *Rights) ownedBy(remembered string) error {
	user, group, _ := strings.Cut(remembered, ":")
	uid, err := strconv.ParseUint(strings.TrimPrefix(user, "+"), 10, 32)
	gid, err2 := strconv.ParseUint(strings.TrimPrefix(group, "+"), 10, 32)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("libvirt remembers the owner %q: %w", remembered, err)
	}
	r.UID, r.GID = uint32(uid), uint32(gid)
	return nil
}

// refused reports whether a filesystem or its server does not support a request, or denies it to
// root.
func refused(err error) bool {
	for _, no := range []error{unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.EROFS} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// GiveRights durably gives the image file at path these rights. It describes the rights that the
// filesystem does not support or let root change. Missing rights give no user more access.
func (s Storage) GiveRights(_ context.Context, path string, r *Rights) (left []string, err error) {
	return s.host().onFile(path, func(f *os.File) ([]string, error) { return giveRights(f, r) })
}

// GiveBack gives the image file at path the owner and the label of these rights, which libvirt
// changes for a guest. Otherwise it is GiveRights.
func (s Storage) GiveBack(_ context.Context, path string, r *Rights) (left []string, err error) {
	return s.host().onFile(path, func(f *os.File) ([]string, error) {
		owner, err := giveOwner(f, r)
		if err != nil {
			return nil, err
		}
		label, err := giveLabel(f, r)
		return append(owner, label...), err
	})
}

func (h host) onFile(path string, give func(*os.File) ([]string, error)) (left []string, err error) {
	f, err := h.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, noImage(err)
	}
	defer func() { _ = f.Close() }()
	if left, err = give(f); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return left, fmt.Errorf("change the rights on %s: %w", path, err)
	}
	return left, nil
}

// giveRights does the work of GiveRights on an open file. The caller makes the change durable.
func giveRights(f *os.File, r *Rights) (left []string, err error) {
	if left, err = giveOwner(f, r); err != nil {
		return left, err
	}
	mode := r.Mode
	if len(left) > 0 { // the file has another group, which gets no more than others
		mode = mode&^0o070 | mode&0o007<<3
	}
	acl, err := giveACL(f, r)
	if err != nil {
		return left, err
	}
	if len(acl) > 0 {
		mode &= 0o707 | groupBits(r.ACL)<<3 // otherwise the group would get the maximum of the list
	}
	if err := changed("the mode", f.Chmod(os.FileMode(mode)), &left); err != nil {
		return left, err
	}
	label, err := giveLabel(f, r)
	return append(append(left, acl...), label...), err
}

func giveOwner(f *os.File, r *Rights) (left []string, err error) {
	err = changed(fmt.Sprintf("the owner %d:%d", r.UID, r.GID), f.Chown(int(r.UID), int(r.GID)), &left)
	return left, err
}

// giveACL sets the access list, or removes a list that the file inherited from its directory.
func giveACL(f *os.File, r *Rights) (left []string, err error) {
	if len(r.ACL) > 0 {
		err = changed("the access list", unix.Fsetxattr(int(f.Fd()), attrACL, r.ACL, 0), &left)
		return left, err
	}
	if err := unix.Fremovexattr(int(f.Fd()), attrACL); err != nil && !errors.Is(err, unix.ENODATA) && !refused(err) {
		return nil, fmt.Errorf("take away the access list: %w", err)
	}
	return nil, nil
}

func giveLabel(f *os.File, r *Rights) (left []string, err error) {
	if len(r.Label) == 0 {
		return nil, nil
	}
	label := strings.TrimRight(string(r.Label), "\x00") + "\x00"
	err = changed("the security label "+label[:len(label)-1], unix.Fsetxattr(int(f.Fd()), attrLabel, []byte(label), 0), &left)
	return left, err
}

func changed(what string, err error, left *[]string) error {
	if err == nil {
		return nil
	}
	if refused(err) {
		*left = append(*left, what)
		return nil
	}
	return fmt.Errorf("change %s: %w", what, err)
}

// groupBits returns the permissions (r, w and x) of the file's own group in the access list. If a
// file has a list, the group bits of its mode are the list's mask instead.
func groupBits(acl []byte) uint32 {
	const (
		header, entry  = 4, 8
		tagGroup       = 0x04
		tagMask        = 0x10
		nothingAllowed = 0
	)
	group, mask := uint16(nothingAllowed), uint16(0o7)
	for at := header; at+entry <= len(acl); at += entry {
		allowed := binary.LittleEndian.Uint16(acl[at+2:])
		switch binary.LittleEndian.Uint16(acl[at:]) {
		case tagGroup:
			group = allowed
		case tagMask:
			mask = allowed
		}
	}
	return uint32(group & mask & 0o7)
}
