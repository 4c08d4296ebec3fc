// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	gib = int64(1) << 30
	// nasty is a name that a page which takes texts for HTML would obey.
	nasty = `<img src=x onerror="document.title='obeyed'">`
)

// The moves of the registry below.
const (
	copying = "5b1c7a52-0000-4000-8000-000000000001"
	stopped = "5b1c7a52-0000-4000-8000-000000000002"
	still   = "5b1c7a52-0000-4000-8000-000000000003"
)

func ago(d time.Duration) time.Time { return time.Now().UTC().Add(-d).Truncate(time.Second) }

func before(d time.Duration) *time.Time {
	t := ago(d)
	return &t
}

func ms(n float64) *float64 { return &n }

func at(pool, name string) api.Location {
	return api.Location{Pool: pool, Name: name, Path: "/srv/" + pool + "/" + name, Format: api.FormatRaw, SizeBytes: 200 * gib}
}

// move is a migration from the pool old to the pool fast.
func move(id, volume, host string, state api.MigrationState) api.Migration {
	return api.Migration{
		ID: id, VolumeID: "v-" + volume, VolumeName: volume, Host: host, SrcAttachmentID: "a-" + volume, DstAttachmentID: "b-" + volume,
		Src: at("old", volume), Dst: at("fast", volume), Method: "overlay", State: state, Phase: string(state),
		StallMS: api.StallMS{Start: ms(38)}, Verify: "full", StartedAt: before(20 * time.Minute),
	}
}

// moves are the open ones. The first has copied so many GiB.
func moves(copied int64) []api.Migration {
	a := move(copying, "db-data", "hv1", api.MigrationCopying)
	a.Phase, a.BytesTotal, a.BytesDone, a.RateBytesPerSecond = "copy", 200*gib, copied*gib, 310<<20
	a.OverlayBytes, a.ExposedSeconds = 620<<20, 318
	b := move(stopped, "web1-vda", "hv2", api.MigrationNeedsOperator)
	b.Error = api.Errorf(api.CodeNeedsOperator, "the definition of instance web1 names /srv/old/web1-vda, and the journal has its overlay over it")
	c := move(still, "mail", "hv1", api.MigrationStarted)
	c.GuestPaused, c.OverlayBytes, c.ExposedSeconds = "there is no room for its writes on the overlay's disk (ENOSPC).", 9*gib, 4210
	return []api.Migration{a, b, c}
}

// ended are moves that are over.
func ended() []api.Migration {
	var all []api.Migration
	for i, name := range []string{"erp-data", "ci-cache", "wiki", "git"} {
		m := move(fmt.Sprintf("5b1c7a52-0000-4000-8000-0000000000a%d", i), name, "hv2", api.MigrationCompleted)
		m.StallMS.Switch = ms(61 + 40*float64(i))
		m.ExposedSeconds = float64(95 * (i + 1))
		m.FinishedAt = before(time.Duration(i*47+6) * time.Minute)
		began := m.FinishedAt.Add(-time.Duration(i+2) * 3 * time.Minute)
		m.StartedAt = &began
		all = append(all, m)
	}
	all[2].State = api.MigrationCancelled
	return all
}

// rows are moves as a registry lists them: what a move has cost stands with its host.
func rows(moves []api.Migration) []api.Migration {
	for i := range moves {
		moves[i].StallMS, moves[i].ExposedSeconds = api.StallMS{}, 0
	}
	return moves
}

func pool(name, host, kind string, shared, active bool, capacity, free int64) api.Pool {
	return api.Pool{Name: name, Host: host, Type: kind, Shared: shared, Active: active, CapacityBytes: capacity * gib, FreeBytes: free * gib, UpdatedAt: ago(9 * time.Second)}
}

func volume(name, pool string, status api.VolumeStatus) api.Volume {
	return api.Volume{
		ID: "v-" + name, Name: name, Status: status, SizeBytes: 200 * gib, Type: "default", Location: at(pool, name),
		Attachments: []api.Attachment{{ID: "a-" + name, VolumeID: "v-" + name, InstanceID: "i-1", InstanceName: "web1"}},
	}
}

func hosts() []api.Host {
	return []api.Host{
		{ID: "h-1", Name: "hv1", Status: api.HostUp, Epoch: 3, Version: "v0.9.0", LastSeenAt: before(2 * time.Second)},
		{ID: "h-2", Name: "hv2", Status: api.HostUp, Epoch: 1, Version: "v0.9.0", LastSeenAt: before(4 * time.Second)},
		{ID: "h-3", Name: "hv3", Status: api.HostSuspect, Epoch: 1, Version: "v0.8.2", LastSeenAt: before(7 * time.Minute)},
		{ID: "h-4", Name: "hv4", Status: api.HostFenced, Epoch: 2, Version: "v0.8.2", LastSeenAt: before(50 * time.Hour)},
	}
}

func pools() []api.Pool {
	return []api.Pool{
		pool("fast", "hv1", "logical", false, true, 4096, 2350), pool("fast", "hv2", "logical", false, true, 4096, 3012),
		pool("old", "hv1", "netfs", true, true, 8192, 1311), pool("old", "hv2", "netfs", true, true, 8192, 1311),
		pool("images", "hv2", "dir", false, true, 500, 11), pool("scratch", "hv3", "dir", false, false, 0, 0),
	}
}

func volumes() []api.Volume {
	return []api.Volume{
		volume("db-data", "old", api.VolumeInUse), volume("web1-vda", "old", api.VolumeInUse), volume("mail", "old", api.VolumeInUse),
		volume("quorum", "old", api.VolumeInUse), volume(nasty, "old", api.VolumeError), volume("erp-data", "fast", api.VolumeInUse),
	}
}

// registry is a site with a bit of everything.
func registry() map[string]any {
	return map[string]any{
		"status": api.Status{
			Program: "volferry-registry", Version: "v0.9.0", Since: ago(80 * time.Hour), Instances: 41, Volumes: 97, MigrationsActive: 3, NeedsOperator: 1,
			Parts: []api.Check{
				{Name: "database", Status: "ok", Message: "takes changes"},
				{Name: "hosts", Status: "warn", Message: "2 up, 1 suspect, 1 fenced", Advice: "look at volferryd on the suspect hosts"},
				{Name: "server", Status: "warn", Message: "the certificate is good for 12 more days", Advice: "volferry-registry issue-cert server --replace; nothing needs to be restarted"},
			},
		},
		"hosts":   hosts(),
		"pools":   pools(),
		"volumes": volumes(),
		"instances": []api.Instance{
			{ID: "i-1", Name: "web1", Host: "hv2", State: api.InstanceRunning},
			{
				ID: "i-2", Name: "backup", Host: "hv1", State: api.InstanceStopped, Differs: true,
				Note: "its disk vdb is at /srv/images/backup.raw, and volume backup is at /srv/old/backup; `virsh dumpxml --inactive -- backup` shows what is there",
			},
		},
		"migrations": moves(80), "migrations?all": append(moves(80), rows(ended())...),
		"migrations/" + ended()[0].ID: ended()[0], // of the hosts of the others the registry knows nothing now
		"drains": []api.Drain{{
			ID: "d-1", Pool: "old", ToPool: "fast", Parallel: 2, State: api.DrainRunning, BytesTotal: 1400 * gib, BytesDone: 480 * gib, StartedAt: ago(3 * time.Hour),
			Volumes: []api.DrainVolume{
				{VolumeID: "v-erp-data", VolumeName: "erp-data", State: api.DrainVolumeMoved},
				{VolumeID: "v-git", VolumeName: "git", State: api.DrainVolumeMoved},
				{VolumeID: "v-db-data", VolumeName: "db-data", State: api.DrainVolumeMoving},
				{VolumeID: "v-mail", VolumeName: "mail", State: api.DrainVolumePending},
				{VolumeID: "v-quorum", VolumeName: "quorum", State: api.DrainVolumeSkipped, Error: api.Errorf(api.CodeMultiattached, "cannot migrate volume quorum: it has 2 attachments")},
			},
		}},
	}
}

// trail is so many events, of which the last are of the moves above.
func trail(n int) []api.Event {
	events := make([]api.Event, n)
	for i := range events {
		events[i] = api.Event{At: ago(time.Duration(n-i) * 90 * time.Second), What: "attachment.transition", Object: "attachment/a-db-data", From: "attaching", To: "attached", Host: "hv1", Who: "host hv1"}
	}
	for i, e := range []api.Event{
		{What: "host.fence", Object: "host/h-4", From: "suspect", To: "fenced", Host: "hv4", Who: "ann", Details: map[string]any{"evidence": "PDU outlet 7 off, seen"}},
		{What: "migration.transition", Object: "migration/" + ended()[0].ID, From: "completing", To: "completed", Host: "hv2", Who: "host hv2"},
		{What: "drain.begin", Object: "pool/old", To: "running", Who: "ann"},
		{What: "migration.register", Object: "migration/" + copying, To: "starting", Host: "hv1", Who: "host hv1"},
		{What: "volume.update", Object: "volume/v-" + nasty, From: "x", To: nasty, Who: "host hv1"},
		{What: "migration.transition", Object: "migration/" + stopped, From: "completing", To: "needs_operator", Host: "hv2", Who: "host hv2"},
	} {
		if at := n - 6 + i; at >= 0 {
			e.At = events[at].At
			events[at] = e
		}
	}
	for i := range events {
		events[i].Seq = int64(i + 1)
	}
	return events
}

// daemon is one host whose registry does not show it the whole site.
func daemon() map[string]any {
	return map[string]any{
		"status": api.Status{
			Program: "volferryd", Version: "v0.9.0", Host: "hv1", HostID: "h-1", Since: ago(time.Hour),
			Parts: []api.Check{{Name: "libvirt", Status: "fail", Message: "libvirt does not answer; what needs it waits", Advice: "systemctl status libvirtd"}},
		},
		"hosts": hosts()[:1], "pools": pools()[:1], "volumes": volumes(),
		"migrations": moves(80)[:1], "migrations?all": moves(80)[:1],
		"checks": []api.Check{{Name: "hook", Status: "fail", Message: "libvirt's hook is not installed", Advice: "make install, then systemctl restart libvirtd"}},
		"ops":    []api.Op{{ID: "o-1", Kind: "attach", State: "needs_operator", Subject: "mail", Error: api.Errorf(api.CodeNeedsOperator, "the disk is not what was attached")}},
	}
}
