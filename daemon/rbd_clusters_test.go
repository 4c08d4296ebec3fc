// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/doctor"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/programs"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

const (
	cephCluster = "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11"
	cephConfig  = "[rbd_clusters." + cephCluster + "]\nmonitors = [\"mon.example:6789\"]\nuser = \"libvirt\"\nsecret = \"2ec115d7-3a88-3ceb-bc12-0ac909a6fd87\"\n"
)

func TestTheProgramOfStorageReachesTheClustersOfTheConfigurationAlone(t *testing.T) {
	key, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer key.Close()
	host := programs.NewStorageHost([]string{"--config", writeConfig(t, cephConfig)})
	all, err := host.Clusters()
	if err != nil || len(all) != 1 || all[cephCluster].User != "libvirt" {
		t.Fatalf("the clusters are %+v, %v", all, err)
	}
	const elsewhere = "rbd://00000000-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web"
	if _, err := host.Look(t.Context(), elsewhere, key); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("an image of another cluster is looked at: %v", err)
	}
	if _, _, err := host.Open(t.Context(), elsewhere, true, key); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("an image of another cluster is opened: %v", err)
	}
	if err := host.Change(t.Context(), elsewhere, []byte(`{"remove":true,"id":"1"}`), key); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("an image of another cluster is removed: %v", err)
	}
	if _, err := host.Snapshot(t.Context(), elsewhere, []byte(`{"name":"volferry-00000000-58a1-4ac3-8f0e-0e3c6f0f7a11"}`), key); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("an image of another cluster is asked for a snapshot: %v", err)
	}
	for _, address := range []string{"/etc/shadow", "nbd://mon.example:6789/web", "rbd://" + cephCluster + "/rbd/web:conf=/x"} {
		if _, _, err := host.Open(t.Context(), address, false, key); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("%s is opened: %v", address, err)
		}
	}
	for _, bad := range []string{strings.Replace(cephConfig, cephCluster, "main", 1), strings.Replace(cephConfig, "6789", "x", 1), strings.Replace(cephConfig, "libvirt", "", 1)} {
		if _, err := programs.NewStorageHost([]string{"--config", writeConfig(t, bad)}).Clusters(); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// awayReach is a cluster that may not answer.
type awayReach struct{ err error }

func (a awayReach) Check(context.Context, string, *os.File) error { return a.err }

func (a awayReach) Look(context.Context, medium.RBDImage, *os.File) (rbd.Info, error) {
	return rbd.Info{}, a.err
}

func (a awayReach) Watchers(context.Context, medium.RBDImage, *os.File) ([]string, error) {
	return nil, a.err
}

func (a awayReach) Snapshot(context.Context, medium.RBDImage, rbd.SnapshotQuery, *os.File) (rbd.Snapshot, error) {
	return rbd.Snapshot{}, a.err
}

func (a awayReach) Change(context.Context, medium.RBDImage, rbd.Change, *os.File) error { return a.err }

func (a awayReach) Dial(context.Context, medium.RBDImage, bool, *os.File) (net.Conn, error) {
	return nil, a.err
}

func TestDoctorSaysWhichClusterIsNotReached(t *testing.T) {
	cfg, err := load(t, []string{"--config", writeConfig(t, cephConfig)})
	if err != nil {
		t.Fatal(err)
	}
	for why, status := range map[error]string{nil: "ok", errors.New("its monitors are another cluster's"): "fail"} {
		d := &doctor.Doctor{Cfg: cfg, Storage: image.Storage{Network: network.Access{RBD: &rbd.Client{
			Clusters: cfg.RBDClusters, Reach: awayReach{why}, Secret: func(context.Context, string) ([]byte, error) { return []byte("\x01\x00timetime\x07\x00the key"), nil },
		}}}}
		checks := d.Clusters(t.Context())
		if len(checks) != 1 || checks[0].Status != status || !strings.Contains(checks[0].Name, cephCluster) || why != nil && !strings.Contains(checks[0].Message, why.Error()) {
			t.Errorf("with %v doctor says %+v", why, checks)
		}
	}
}
