// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The how-tos of volumes, instances and hosts, on the site of the how-tos.

func (s *library) attachAndShare(t *testing.T, p *page) {
	web2 := s.bootable(t, "web2", "slow", "web2")
	if err := web2.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	assertBooted(t, web2, "web2")
	ctl(t, s.hv1.at, "instance", "adopt", "web2")
	p.Others["volferryctl type create"] = func(ctx context.Context, line string) error { // at the registry's socket, as the page says
		_, _, err := s.reader(s.registry, registrySocket).Shell(ctx, line)
		return err
	}
	p.does(t, "volferryctl volume create db-data --size 20GiB", "volferryctl volume detach db-data web1", "volferryctl type create clustered --multiattach --pool nfs")
	ctl(t, s.hv1.at, "volume", "delete", "db-data")

	sh(t, s.hv1.Machine, "for i in nodes node1 node2; do qemu-img create -q -f raw /srv/nfs/$i.raw 8M; done; virsh pool-refresh nfs")
	for _, node := range []string{"node1", "node2"} {
		s.off(t, node, rawFile("/srv/nfs/"+node+".raw"), rawFile("/srv/nfs/nodes.raw")+"<shareable/>")
	}
	p.Names = []string{"clustered", "clustered2"} // there is one by now
	p.does(t, "volferryctl type create clustered --multiattach\n")
	p.Names = nil
	if n := len(get[[]api.Attachment](t, s.hv1.at, "attachments", "attachment", "list", "--volume", "node1-vdb")); n != 2 {
		t.Errorf("the shared volume has %d attachments, want two", n)
	}
	p.does(t, "volferryctl volume detach quorum web2")
	s.assertIn(t, "nfs2", "quorum")
}

func (s *library) shelve(t *testing.T, p *page) {
	s.atRegistry(p)
	s.bootImage(t, "/srv/fast/web1-new.raw", "web1-new")
	sh(t, s.hv1.Machine, "virsh pool-refresh fast")
	ctl(t, s.hv1.at, "volume", "adopt", "web1-new", "--pool", "fast", "--volume-name", "web1-new.raw", "--format", "raw", "--bootable")
	// Two ways are shown: the second one begins with the instance shelved again.
	p.Others["volferryctl instance unshelve web1"] = func(ctx context.Context, line string) error {
		_, _, err := p.Shell(ctx, line+" && volferryctl instance shelve web1 --force")
		return err
	}
	p.does(t, "volferryctl instance shelve web1")
	p.Others["volferryctl instance unshelve web1 --host"] = nil
	p.does(t, "volferryctl instance unshelve web1")
	s.web1Is(t, s.hv2, "web1")

	ctl(t, s.admin, "instance", "shelve", "web1")
	p.does(t, "volferryctl volume detach web1-vda web1")
	p.Names = []string{"--to-pool new", "--to-pool slow"}
	p.does(t, "volferryctl volume migrate web1-vda")
	s.assertIn(t, "slow", "web1-vda")
	ctl(t, s.admin, "instance", "unshelve", "web1", "--host", "hv1")
	s.web1Is(t, s.hv1, "web1-new")
	ctl(t, s.admin, "instance", "shelve", "web1")
	ctl(t, s.admin, "volume", "detach", "web1-new", "web1")
	ctl(t, s.admin, "volume", "attach", "web1-vda", "web1", "--root")
	ctl(t, s.admin, "instance", "unshelve", "web1", "--host", "hv1")
	assertBooted(t, s.web1, "web1")
}

// web1Is claims that a host has the instance, which has booted from the volume that was made
// with this name.
func (s *library) web1Is(t *testing.T, h *siteHost, root string) {
	t.Helper()
	s.web1 = &guest{Guest: s.web1.At(h.libvirt), disks: s.web1.disks}
	assertBooted(t, s.web1, root)
}

func (s *library) changeABootVolume(t *testing.T, p *page) {
	p.does(t, "volferryctl instance show web1", "volferryctl instance stop web1", "volferryctl volume detach web1-vda web1",
		"volferryctl instance start web1", "volferryctl volume attach web1-new web1 --root")
	assertBooted(t, s.web1, "web1-new")

	win := s.bootable(t, "win", "fast", "before")
	ctl(t, s.hv1.at, "instance", "adopt", "win")
	ctl(t, s.hv1.at, "instance", "start", "win")
	assertBooted(t, win, "before")
	p.does(t, "volferryctl instance stop win")
	assertBooted(t, win, "before")
	sh(t, s.hv1.Machine, "rm /srv/fast/win-before-update.raw")
	p.Words["A"] = s.attachedAt(t, "win-vda")
	p.does(t, "volferryctl attachment list --volume win-vda")
	// The update: another system is on the disk.
	ctl(t, s.hv1.at, "instance", "stop", "win")
	s.bootImage(t, "/srv/fast/win-vda.raw", "after")
	ctl(t, s.hv1.at, "instance", "start", "win")
	assertBooted(t, win, "after")
	sh(t, s.hv1.Machine, "virsh pool-refresh fast")
	p.does(t, "volferryctl volume adopt win-before-update")
	assertBooted(t, win, "before")
	ctl(t, s.hv1.at, "instance", "stop", "win")
}

func (s *library) resizeAVolume(t *testing.T, p *page) {
	p.does(t, "volferryctl volume resize web1-vda --size 40GiB")
	if v := get[api.Volume](t, s.admin, "volume", "volume", "show", "web1-vda"); v.SizeBytes != 40<<30 {
		t.Errorf("the volume has %d bytes", v.SizeBytes)
	}
	p.leaves(t, "lvextend", "a machine has no logical volumes")
	p.leaves(t, "volferryctl volume set-size", "the registry has the right size here; TestScripts of ctl/internal/command makes the call")
}

func (s *library) checkAHost(t *testing.T, p *page) {
	p.does(t, "volferryctl doctor")
	p.leaves(t, "volferryctl doctor --fix", "TestDoctorAndPurgeOnAHostWithThePackages breaks a host for it")
	p.leaves(t, "volferryctl instance unpause NAME", "it is for a guest with a lease that another program left")
}

func (s *library) recover(t *testing.T, p *page) {
	p.Words["V"], p.Words["G"] = "web1-vdb", "web1"
	p.does(t, "volferryctl status")
	const lostHost = "it is for an overlay of a host that is lost; TestTheCopyThatIsKeptOfALostHostHoldsWhatIsPromised of test/e2e does it"
	p.leaves(t, "stat -c", lostHost)
	p.leaves(t, "qemu-img commit -d", lostHost)
	p.leaves(t, "virsh suspend G", "it is for a guest with a snapshot; TestASnapshotOverTheOverlayIsMergedAsTheMessageSays of test/e2e does it")
	p.leaves(t, "volferryctl instance repair", "it is for a definition that was put back; TestADefinitionThatWasPutBackInAMoveIsRepaired of test/e2e does it")
	p.leaves(t, "qemu-img convert -n -f raw -O raw OLD_IMAGE", "it is for a guest that was started on the image that a move has left, and that is to stay on it")
	p.leaves(t, "volferryctl volume adopt web-vda-old", "it is for a source that was written since; TestAWrittenSourceIsSaidUntilItIsAVolume of test/e2e adopts one")
	p.leaves(t, "mv -n OVERLAY", "it is for a guest that was committed to the source and is off; TestAGuestThatRanOnTheSourceAndIsOffIsCancelledByTheCommandsOfThePage of test/e2e does it")
	p.does(t, "virsh dumpxml G")
	p.leaves(t, "awk -v target=vda", "it is for a guest that libvirtd and QEMU disagree about; TestAGuestThatLibvirtHasOnTheWrongChainIsCuredBySaveAndRestore of test/e2e does it")
	const lost = "it is for a guest that a libvirtd has lost which died in a switch; TestLibvirtdThatDiesBesideAPivotCostsTheGuestNothing of test/e2e follows it"
	p.leaves(t, "virsh domuuid G", lost)
	p.leaves(t, "grep -zxqF", lost)
}
