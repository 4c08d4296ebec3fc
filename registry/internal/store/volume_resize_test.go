// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func beginResize(host string, opID string) api.VolumeResizeBegin {
	return api.VolumeResizeBegin{Host: host, Epoch: 1, Generation: 1, OpID: opID}
}

func resizing(ref, host string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.Volumes.BeginResize(t.Context(), nobody, ref, beginResize(host, "op-r")))(t)
	}
}

func TestAVolumeThatIsResizedIsKeptFromEverybodyElse(t *testing.T) {
	atRoot := rootMigration()
	checkClusterRefusals(t, map[string]refusal{
		"attach": {resizing(disk, hostA), reserving(nil), api.CodeVolumeNotAvailable, "it is resizing"},
		"migrate": {resizing(disk, hostA), func(t *testing.T, s *Store) error {
			return second(s.Migrations.Register(t.Context(), nobody, diskMigration()))
		}, api.CodeVolumeNotAvailable, "it is resizing"},
		"migrate at its guest": {resizing(root, hostA), func(t *testing.T, s *Store) error { return second(s.Migrations.Register(t.Context(), nobody, atRoot)) }, api.CodeVolumeNotAvailable, "it is resizing"},
		"delete": {resizing(disk, hostA), func(t *testing.T, s *Store) error {
			return second(s.Volumes.Transition(t.Context(), nobody, disk, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeDeleting}))
		}, api.CodeConflict, "is resizing"},
		"forget": {resizing(disk, hostA), func(t *testing.T, s *Store) error { return second(s.Volumes.Forget(t.Context(), nobody, disk)) }, api.CodeVolumeNotAvailable, "it is resizing"},
		"retype": {resizing(disk, hostA), func(t *testing.T, s *Store) error {
			return second(s.Retypes.Retype(t.Context(), nobody, disk, api.VolumeRetype{Type: "default"}))
		}, api.CodeVolumeNotAvailable, "resizing"},
		"be seen to have grown": {resizing(disk, hostA), func(t *testing.T, s *Store) error {
			size := at("/nfs/disk").SizeBytes
			return second(s.Volumes.Grow(t.Context(), nobody, disk, api.VolumeGrow{FromBytes: size, SizeBytes: 2 * size}))
		}, api.CodeVolumeNotAvailable, "it is resizing"},
		"resize on another host": {resizing(disk, hostA), func(t *testing.T, s *Store) error {
			return second(s.Volumes.BeginResize(t.Context(), nobody, disk, beginResize(hostB, "other")))
		}, api.CodeVolumeNotAvailable, "it is resizing"},
	})
}

func TestAResizeIsRefusedWhereTheVolumeIsNotToBeTouched(t *testing.T) {
	begin := func(ref, host string, change func(*api.VolumeResizeBegin)) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			in := beginResize(host, "op-r")
			if change != nil {
				change(&in)
			}
			return second(s.Volumes.BeginResize(t.Context(), nobody, ref, in))
		}
	}
	ofDisk := begin(disk, hostA, nil)
	locked := func(t *testing.T, s *Store) {
		t.Helper()
		must(s.Instances.Lock(t.Context(), nobody, app, api.InstanceLock{Reason: "audit"}))(t)
	}
	checkClusterRefusals(t, map[string]refusal{
		"moving":                  {moving(diskMigration()), ofDisk, api.CodeMigrationActive, "is moving it"},
		"another generation":      {nil, begin(disk, hostA, func(in *api.VolumeResizeBegin) { in.Generation = 7 }), api.CodeStaleGeneration, "7"},
		"another epoch":           {nil, begin(disk, hostA, func(in *api.VolumeResizeBegin) { in.Epoch = 7 }), api.CodeStaleEpoch, "7"},
		"no op":                   {nil, begin(disk, hostA, func(in *api.VolumeResizeBegin) { in.OpID = "" }), api.CodeInvalidArgument, "op id"},
		"reserved":                {reserved(nil), ofDisk, api.CodeVolumeNotAvailable, "reserved"},
		"attached twice":          {inTurn(attached(nil), attached(atDB)), ofDisk, api.CodeMultiattached, "2 attachments"},
		"another host's guest":    {attached(nil), begin(disk, hostB, nil), api.CodeNotYourHost, "host a"},
		"another host's":          {nil, begin(local, hostB, nil), api.CodeNotYourHost, "local"},
		"being deleted":           {dataStatus(api.VolumeDeleting), begin(data, hostA, nil), api.CodeVolumeNotAvailable, "deleting"},
		"of a locked instance":    {inTurn(attached(nil), locked), ofDisk, api.CodeInstanceLocked, "audit"},
		"nobody knows the volume": {nil, begin("none", hostA, nil), api.CodeNotFound, "none"},
	})
}

func TestTheEndOfAResizeHasTheSizeAndLetsOthersIn(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *Store){"attached nowhere": inTurn(), "attached": attached(nil)} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			before(t, s)
			was := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
			end := func(op string, size int64) (api.Volume, error) {
				return s.Volumes.EndResize(t.Context(), nobody, disk, api.VolumeResizeEnd{Host: hostA, Epoch: 1, OpID: op, SizeBytes: size})
			}
			resizing(disk, hostA)(t, s)
			wantVolume(t, s, disk, api.VolumeResizing, len(was.Attachments))
			must(end("other", 4*was.SizeBytes))(t) // there is nothing to end
			wantVolume(t, s, disk, api.VolumeResizing, len(was.Attachments))
			wantCode(t, second(end("op-r", was.SizeBytes-512)), api.CodeInvalidArgument, "only grown")
			now := must(end("op-r", 2*was.SizeBytes))(t)
			if now.SizeBytes != 2*was.SizeBytes || now.Location.SizeBytes != 2*was.SizeBytes || now.Status != was.Status || now.SizeChangedAt == nil || now.ResizeOpID != "" {
				t.Errorf("the volume is %+v", now)
			}
			if e := lastEvent(t, s); e.What != "volume.resize_end" || e.OpID != "op-r" {
				t.Errorf("the trail ends with %+v", e)
			}
			resizing(disk, hostA)(t, s)
			given := must(end("op-r", 0))(t)
			if given.SizeBytes != now.SizeBytes || given.Status != was.Status {
				t.Errorf("one that was given back is %+v", given)
			}
		})
	}
}

// A resize of a fenced host must not lock the volume for ever, nor a resize that only a restored
// database knows.
func TestAResizeThatNobodyEndsIsGotOver(t *testing.T) {
	s := newCluster(t)
	resizing(disk, hostA)(t, s)
	again := must(s.Volumes.BeginResize(t.Context(), nobody, disk, beginResize(hostA, "next")))(t)
	if again.ResizeOpID != "next" {
		t.Errorf("it is kept for %q", again.ResizeOpID)
	}
	fenceA(t, s)
	wantVolume(t, s, disk, api.VolumeAvailable, 0)
	must(s.Volumes.BeginResize(t.Context(), nobody, disk, beginResize(hostB, "theirs")))(t)
	must(s.Volumes.EndResize(t.Context(), nobody, disk, api.VolumeResizeEnd{Host: hostB, Epoch: 1, OpID: "theirs"}))(t)
	_, err := s.Volumes.EndResize(t.Context(), nobody, disk, api.VolumeResizeEnd{Host: hostA, Epoch: 1, OpID: "next", SizeBytes: 1 << 30})
	wantCode(t, err, api.CodeStaleEpoch, "")
}
