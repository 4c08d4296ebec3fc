// SPDX-License-Identifier: Apache-2.0

package medium

import (
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// RBDScheme is the prefix of the paths of RBD images: rbd://CLUSTER/POOL/IMAGE, with the fsid of
// the Ceph cluster.
const RBDScheme = "rbd://"

// RBDImage is an RBD image of a Ceph cluster. Each host knows how to reach the cluster.
type RBDImage struct {
	// Cluster is the fsid of the cluster.
	Cluster string
	Pool    string
	Name    string
}

// IsRBD reports whether the path of a location is the address of an RBD image.
func IsRBD(path string) bool { return strings.HasPrefix(path, RBDScheme) }

// URI returns the path of a location for the image.
func (i RBDImage) URI() string { return RBDScheme + i.Cluster + "/" + i.Spec() }

// Spec returns the name of the image within a cluster, in Ceph's syntax.
func (i RBDImage) Spec() string { return i.Pool + "/" + i.Name }

// Check validates the address of an image. It accepts only characters that need no escaping, like
// NBDExport.Check.
func (i RBDImage) Check() error {
	if err := CheckCluster(i.Cluster); err != nil {
		return err
	}
	for _, name := range []string{i.Pool, i.Name} {
		switch {
		case name == "", strings.ContainsFunc(name, isEscaped), strings.ContainsAny(name, "/:@"), strings.HasPrefix(name, "-"):
			return api.Errorf(api.CodeInvalidArgument, "the name %.120q of an RBD pool or image may have letters, digits and the characters . _ - +, and does not begin with a -", name)
		case len(name) > maxRBDNameBytes:
			return api.Errorf(api.CodeInvalidArgument, "the name %.120q of an RBD pool or image is too long", name)
		}
	}
	return nil
}

// maxRBDNameBytes is the longest name that librbd accepts (RBD_MAX_IMAGE_NAME_SIZE).
const maxRBDNameBytes = 96

const clusterBytes = 36

// CheckCluster validates the id of a Ceph cluster, a UUID in lower case.
func CheckCluster(id string) error {
	for at, r := range id {
		hyphen := at == 8 || at == 13 || at == 18 || at == 23
		if hyphen != (r == '-') || !hyphen && (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return api.Errorf(api.CodeInvalidArgument, "%.60q is no id of a Ceph cluster: that is a UUID in lower case (ceph fsid)", id)
		}
	}
	if len(id) != clusterBytes {
		return api.Errorf(api.CodeInvalidArgument, "%.60q is no id of a Ceph cluster: that is a UUID in lower case (ceph fsid)", id)
	}
	return nil
}

// ParseRBD parses the path of a location as an RBD image.
func ParseRBD(uri string) (RBDImage, error) {
	rest, is := strings.CutPrefix(uri, RBDScheme)
	parts := strings.Split(rest, "/")
	if !is || len(parts) != 3 {
		return RBDImage{}, api.Errorf(api.CodeInvalidArgument, "%.120q is not the address of an RBD image: write %sCLUSTER/POOL/IMAGE, with the id of the cluster (ceph fsid)", uri, RBDScheme)
	}
	i := RBDImage{Cluster: parts[0], Pool: parts[1], Name: parts[2]}
	return i, i.Check()
}
