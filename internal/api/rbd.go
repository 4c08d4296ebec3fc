// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
)

// RBDScheme is what the paths of volumes that are RBD images of a Ceph cluster begin with:
// rbd://CLUSTER/POOL/IMAGE, with the id of the cluster (its fsid).
const RBDScheme = "rbd://"

// RBDImage is an RBD image of a Ceph cluster. How the cluster is reached is each host's to know.
type RBDImage struct {
	// Cluster is the id of the cluster, which no two clusters share.
	Cluster string
	Pool    string
	Name    string
}

// IsRBD reports whether the path of a location is the address of an RBD image.
func IsRBD(path string) bool { return strings.HasPrefix(path, RBDScheme) }

// URI is the image as the path of a location.
func (i RBDImage) URI() string { return RBDScheme + i.Cluster + "/" + i.Spec() }

// Spec is the image as Ceph names it within a cluster.
func (i RBDImage) Spec() string { return i.Pool + "/" + i.Name }

// Check returns what is wrong with the address of an image. Only characters are taken that nobody
// escapes, so that the text is the same for QEMU, libvirt, Ceph and this program.
func (i RBDImage) Check() error {
	if err := CheckCluster(i.Cluster); err != nil {
		return err
	}
	for _, name := range []string{i.Pool, i.Name} {
		switch {
		case name == "", strings.ContainsFunc(name, isEscaped), strings.ContainsAny(name, "/:@"), strings.HasPrefix(name, "-"):
			return invalid("the name %.120q of an RBD pool or image may have letters, digits and the characters . _ - +, and does not begin with a -", name)
		case len(name) > maxRBDNameBytes:
			return invalid("the name %.120q of an RBD pool or image is too long", name)
		}
	}
	return nil
}

// maxRBDNameBytes is what librbd takes of a name (RBD_MAX_IMAGE_NAME_SIZE).
const maxRBDNameBytes = 96

// clusterBytes is the length of a UUID as text.
const clusterBytes = 36

// CheckCluster returns what is wrong with the id of a Ceph cluster, a UUID as Ceph writes it.
func CheckCluster(id string) error {
	for at, r := range id {
		hyphen := at == 8 || at == 13 || at == 18 || at == 23
		if hyphen != (r == '-') || !hyphen && (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return invalid("%.60q is no id of a Ceph cluster: that is a UUID in lower case (ceph fsid)", id)
		}
	}
	if len(id) != clusterBytes {
		return invalid("%.60q is no id of a Ceph cluster: that is a UUID in lower case (ceph fsid)", id)
	}
	return nil
}

// ParseRBD reads the path of a location that is an RBD image.
func ParseRBD(uri string) (RBDImage, error) {
	rest, is := strings.CutPrefix(uri, RBDScheme)
	parts := strings.Split(rest, "/")
	if !is || len(parts) != 3 {
		return RBDImage{}, invalid("%.120q is not the address of an RBD image: write %sCLUSTER/POOL/IMAGE, with the id of the cluster (ceph fsid)", uri, RBDScheme)
	}
	i := RBDImage{Cluster: parts[0], Pool: parts[1], Name: parts[2]}
	return i, i.Check()
}
