// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// CheckPlace refuses (permission_denied) a path that is neither in an active pool nor in
// AllowedPaths. For a file it checks the path without links. For a block device the given name
// counts too, because /dev/vg/lv is a link to /dev/dm-N.
func (r Rules) CheckPlace(ctx context.Context, path string) error {
	if !medium.Of(path).Path {
		return r.checkAddress(path)
	}
	real, err := resolve(path)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "path %.120q is in a directory that does not exist%s", path, hiddenByUnit(path))
	}
	device, err := isDevice(real)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "cannot use path %.120q: %v", path, err)
	}
	if filepath.Clean(path) != path { // the text of such a path is not reliable
		path = real
	}
	if device {
		return r.checkDevice(ctx, path, real)
	}
	return r.checkFile(ctx, path, real)
}

var addressRules = map[string]func(Rules, string) error{
	medium.NBDScheme:    Rules.checkSocket,
	medium.NBDTCPScheme: Rules.checkServer,
	medium.RBDScheme:    Rules.checkCluster,
}

// checkAddress refuses an address that the configuration does not permit: a domain definition
// could name any server.
func (r Rules) checkAddress(path string) error { return addressRules[medium.Of(path).Scheme](r, path) }

func (r Rules) checkSocket(path string) error {
	e, err := medium.ParseNBD(path)
	if err != nil {
		return err
	}
	real, err := resolve(e.Socket)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "socket %s is in a directory that does not exist%s", e.Socket, hiddenByUnit(e.Socket))
	}
	if r.allowsFile(real) {
		return nil
	}
	return api.Errorf(api.CodePermissionDenied, "socket %s of an NBD server is not in allowed_paths of volferryd.toml; list its directory %s there",
		e.Socket, filepath.Dir(real))
}

func (r Rules) checkServer(path string) error {
	e, err := medium.ParseNBD(path)
	if err != nil || slices.Contains(r.NBDServers, e.Server) {
		return err
	}
	return api.Errorf(api.CodePermissionDenied, "NBD server %s is not in nbd_servers of volferryd.toml, with this name and port; list it there", e.Server)
}

func (r Rules) checkCluster(path string) error {
	image, err := medium.ParseRBD(path)
	if err == nil {
		_, err = r.RBD.Find(image)
	}
	return err
}
