// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

// backup copies the database as an operator does.
func (c *cluster) backup(t *testing.T) string {
	t.Helper()
	return must(c.Backup(t.Context()))(t)
}

// config is an empty configuration, so that none of the machine is read.
func (c *cluster) config(t *testing.T) string {
	t.Helper()
	path := filepath.Join(c.Dir, "none.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// putBack stops the registry, replaces its database, and starts it again.
func (c *cluster) putBack(t *testing.T, file string) {
	t.Helper()
	if err := c.PutBack(t.Context(), file); err != nil {
		t.Fatal(err)
	}
}

// accept says that the restore was looked into. The registry is stopped for that.
func (c *cluster) accept(t *testing.T) {
	t.Helper()
	if err := c.AcceptRestore(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code api.Code, text string) {
	t.Helper()
	if api.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("error = %v, want %s with %q", err, code, text)
	}
}

// comeBack is what a daemon does about the answer that its epoch is an old one.
func (c *cluster) comeBack(t *testing.T, h *host) {
	t.Helper()
	r := c.of(t, h)
	err := h.report(t.Context(), r)
	if api.CodeOf(err) != api.CodeStaleEpoch {
		t.Fatalf("host %s reports after the restore: %v, want stale_epoch", h.name, err)
	}
	epoch, _ := newEpoch(api.AsError(err))
	if epoch <= h.epoch.Load() {
		t.Fatalf("host %s is in epoch %d and is told of epoch %d: it will take that for an old database for ever", h.name, h.epoch.Load(), epoch)
	}
	must(r.RejoinHost(t.Context(), h.id, api.HostRejoin{Epoch: epoch}))(t)
	h.epoch.Store(epoch)
	if err := h.report(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func TestADatabaseFromYesterdayIsReadOnlyUntilThatIsAccepted(t *testing.T) {
	c := newCluster(t, "a", "b")
	a, b := c.hosts[0], c.hosts[1]
	kept, instance := c.volume(t, a, oneType), c.instance(t, a)
	yesterday := c.backup(t)
	lost := c.volume(t, a, oneType)
	for _, h := range c.hosts {
		if err := h.report(t.Context(), c.of(t, h)); err != nil {
			t.Fatal(err)
		}
	}
	told := *a.mark.Load()
	c.putBack(t, yesterday)

	// Before any host has shown what it was told, no change of one is taken.
	wantCode(t, attachOnce(t, c, a, kept.ID, instance), api.CodeRegistryUnavailable, "has not heard from host a yet")
	wantCode(t, a.report(t.Context(), c.of(t, a)), api.CodeRegistryUnavailable, "accept-restore")
	checkReadOnly(t, c, a, kept.ID, instance)
	if status := reads(t, c.operator.Status); !status.Degraded || !slices.ContainsFunc(status.Parts, func(p api.Check) bool {
		return p.Name == "database" && p.Status == "fail" && strings.Contains(p.Message, "host a") && strings.Contains(p.Message, "accept-restore")
	}) {
		t.Errorf("status = %+v", status)
	}
	if _, err := c.local.Volume(t.Context(), lost.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a volume that the backup does not have: %v", err)
	}

	// A restart forgets; the next report finds it again.
	c.Kill()
	c.mustStart(t)
	wantCode(t, b.report(t.Context(), c.of(t, b)), api.CodeRegistryUnavailable, "host b")
	checkReadOnly(t, c, a, kept.ID, instance)

	c.accept(t)
	c.comeBack(t, a)
	// What the lost history gave to b is free in the backup.
	wantCode(t, attachOnce(t, c, a, kept.ID, instance), api.CodeRegistryUnavailable, "host b")
	c.comeBack(t, b)
	now := *a.mark.Load()
	if now.Timeline <= told.Timeline || now.RegistryID != told.RegistryID {
		t.Errorf("mark = %+v after %+v", now, told)
	}
	if err := attachTo(t.Context(), c.of(t, a), a, kept.ID, instance, uuid.NewString()); err != nil {
		t.Errorf("a change after the restore was accepted: %v", err)
	}
	if status := reads(t, c.operator.Status); status.Degraded {
		t.Errorf("status = %+v", status)
	}
	c.checkInvariants(t)
}

// checkReadOnly has every kind of caller refused who wants a change.
func checkReadOnly(t *testing.T, c *cluster, h *host, volume, instance string) {
	t.Helper()
	for what, err := range map[string]error{
		"attach":     attachOnce(t, c, h, volume, instance),
		"retype":     refusal(c.operator.RetypeVolume(t.Context(), opID(), volume, api.VolumeRetype{Type: manyType})),
		"locally":    refusal(c.local.PostEvent(t.Context(), opID(), api.EventPost{What: "test", Object: "test"})),
		"a new host": refusal(c.local.Report(t.Context(), api.HostReport{ID: uuid.NewString(), Name: "new", BootID: "first"})),
	} {
		if api.CodeOf(err) != api.CodeRegistryUnavailable || !strings.Contains(err.Error(), "accept-restore") {
			t.Errorf("%s: %v, want registry_unavailable and what to do", what, err)
		}
	}
	if v, err := c.operator.Volume(t.Context(), volume); err != nil || len(v.Attachments) != 0 {
		t.Errorf("a read: %+v, %v", v, err)
	}
}

func attachOnce(t *testing.T, c *cluster, h *host, volume, instance string) error {
	t.Helper()
	return refusal(c.of(t, h).ReserveAttachment(t.Context(), opID(), reserveFor(h, volume, instance, uuid.NewString(), 1)))
}

func refusal[T any](_ T, err error) error { return err }

// Fences that the database does not know of any more: the host that came back from
// one believes in an epoch that the database never gave out, and the one that did
// not believes in none. Both must be able to work again, and neither with what it
// was told before.
func TestHostsThatWereFencedSinceTheBackupWorkAgainOnceThatIsAccepted(t *testing.T) {
	c := newCluster(t, "back", "away")
	back, away := c.hosts[0], c.hosts[1]
	volume, instance := c.volume(t, away, manyType), c.instance(t, away)
	yesterday := c.backup(t)
	for range 3 {
		for _, h := range c.hosts {
			must(c.operator.FenceHost(t.Context(), opID(), h.id, api.HostFence{Evidence: "the test", EvenIfUp: true}))(t)
		}
	}
	c.comeBack(t, back)
	if back.epoch.Load() != 4 || away.epoch.Load() != 1 {
		t.Fatalf("epochs are %d and %d", back.epoch.Load(), away.epoch.Load())
	}
	c.putBack(t, yesterday)
	wantCode(t, back.report(t.Context(), c.of(t, back)), api.CodeRegistryUnavailable, "host back")
	c.accept(t)

	// What it wants was begun before the fence.
	wantCode(t, away.report(t.Context(), c.of(t, away)), api.CodeStaleEpoch, "host away")
	wantCode(t, attachOnce(t, c, away, volume.ID, instance), api.CodeStaleEpoch, "host away")
	for _, h := range c.hosts {
		c.comeBack(t, h)
	}
	if err := attachOnce(t, c, away, volume.ID, instance); err != nil {
		t.Error(err)
	}
}

// A database that is put back a second time knows of nothing that was accepted
// after the first.
func TestTheSameBackupCanBePutBackTwice(t *testing.T) {
	c := newCluster(t, "a")
	h := c.hosts[0]
	yesterday := c.backup(t)
	c.volume(t, h, oneType)
	for range 2 {
		if err := h.report(t.Context(), c.of(t, h)); err != nil {
			t.Fatal(err)
		}
		c.putBack(t, yesterday)
		accepted := 0
		for ; api.CodeOf(h.report(t.Context(), c.of(t, h))) == api.CodeRegistryUnavailable; accepted++ {
			if accepted > 2 {
				t.Fatal("the restore is never over")
			}
			c.accept(t)
		}
		if accepted == 0 {
			t.Error("the restore was not noticed")
		}
		c.comeBack(t, h)
	}
}

func TestAcceptRestoreWhileTheRegistryRunsChangesNothing(t *testing.T) {
	c := newCluster(t, "a")
	before := reads(t, c.local.Status)
	if out, err := c.Run(t.Context(), "accept-restore", "--evidence", "none", "--config", c.config(t), "--db", c.DB()); err == nil {
		t.Errorf("it was taken: %s", out)
	}
	if err := c.hosts[0].report(t.Context(), c.of(t, c.hosts[0])); err != nil || c.hosts[0].mark.Load().Timeline != 1 {
		t.Errorf("report: %v, mark %+v", err, c.hosts[0].mark.Load())
	}
	if after := reads(t, c.local.Status); !after.Since.Equal(before.Since) {
		t.Errorf("the registry was started anew")
	}
}
